"""Each thing that can be put in the dock, behind one protocol."""

from oracle.subjects.record import RequestRecord, Subject
from oracle.subjects.refinfer_modes import MODES, RefinferSubject, options_of

__all__ = ["MODES", "RefinferSubject", "RequestRecord", "Subject", "options_of"]
