"""How is a sum added up? Every operation that rounds, in two manners behind one interface."""

from refinfer.numerics.dtypes import compute_dtype, dtype_by_name
from refinfer.numerics.invariant import InvariantNumerics
from refinfer.numerics.manner import Numerics
from refinfer.numerics.plain import PlainNumerics
from refinfer.numerics.products import LinearProduct
from refinfer.numerics.rotary import inverse_frequencies
from refinfer.numerics.self_check import check_operations

__all__ = [
    "InvariantNumerics",
    "LinearProduct",
    "Numerics",
    "PlainNumerics",
    "check_operations",
    "compute_dtype",
    "dtype_by_name",
    "inverse_frequencies",
]
