"""How is a sum added up? Every operation that rounds, in one manner behind one interface."""

from refinfer.numerics.dtypes import compute_dtype, dtype_by_name
from refinfer.numerics.manner import Numerics
from refinfer.numerics.plain import PlainNumerics
from refinfer.numerics.rotary import inverse_frequencies

__all__ = ["Numerics", "PlainNumerics", "compute_dtype", "dtype_by_name", "inverse_frequencies"]
