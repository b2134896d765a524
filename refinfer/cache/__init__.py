"""Where do keys and values live? One file for each way of keeping them."""

from refinfer.cache.continuous import ContinuousCache
from refinfer.cache.recompute import CausalAttentionView
from refinfer.cache.static import StaticCache

__all__ = ["CausalAttentionView", "ContinuousCache", "StaticCache"]
