"""How does long work show how far it is? A bar on a terminal, and a line for each tenth where there is none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

LONGEST_WORDS = 60
_NUM_LINES = 10


Number = int | float

Tell = Callable[..., None]
"""Takes what is done of the total, and what comes next; without words, what was said before goes on."""


@contextmanager
def shown_progress(console: Console, words: str, total: Number) -> Iterator[Tell]:
    """Shows how far some work is, until the block ends.

    Args:
        console: Where.
        words: What is being done.
        total: What the whole work counts.

    Yields:
        What is to be called as the work goes on.
    """
    if not console.is_terminal:
        yield _lines(console, words, total)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(words, total=total)

        def tell(done: Number, words: str | None = None) -> None:
            progress.update(task, completed=done)
            if words is not None:
                progress.update(task, description=words[:LONGEST_WORDS])

        yield tell


def _lines(console: Console, first_words: str, total: Number) -> Tell:
    last = 0

    def tell(done: Number, words: str | None = None) -> None:
        nonlocal last
        tenth = int(_NUM_LINES * done / total)
        if tenth > last:
            last = tenth
            share = f"{100 * done / total:3.0f} %"
            console.print(
                f"{share} {words or first_words}"[: console.width], markup=False, emoji=False, highlight=False
            )

    return tell
