"""Where do keys and values live? One file for each way of keeping them."""

from refinfer.cache.block_pool import BlockPool
from refinfer.cache.block_table import BlockTable
from refinfer.cache.continuous import ContinuousCache
from refinfer.cache.paged import HostBlocks, PagedCache
from refinfer.cache.paged_view import PagedPart
from refinfer.cache.prefix import PrefixCursor, PrefixMap
from refinfer.cache.recompute import CausalAttentionView
from refinfer.cache.static import StaticCache

__all__ = [
    "BlockPool",
    "BlockTable",
    "CausalAttentionView",
    "ContinuousCache",
    "HostBlocks",
    "PagedCache",
    "PagedPart",
    "PrefixCursor",
    "PrefixMap",
    "StaticCache",
]
