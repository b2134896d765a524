"""Where does a model come from?"""

from refinfer.hub.fetch import fetch
from refinfer.hub.resolve import resolve_model

__all__ = ["fetch", "resolve_model"]
