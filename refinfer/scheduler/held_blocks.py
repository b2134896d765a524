"""What one request holds of the paged cache: its block table, and how far it is published."""

from refinfer.cache.block_table import BlockTable
from refinfer.cache.prefix import PrefixCursor


class HeldBlocks:
    """The blocks of one request.

    Args:
        block_size: Token places of a block.

    Attributes:
        table: Its logical blocks, in order.
        cursor: How far the prefix map knows them.
        num_swapped_blocks: Blocks it has in host memory instead.
    """

    __slots__ = ("cursor", "num_swapped_blocks", "table")

    def __init__(self, block_size: int) -> None:
        self.table = BlockTable(block_size)
        self.cursor = PrefixCursor()
        self.num_swapped_blocks = 0
