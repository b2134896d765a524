"""Which text may be shown while a stop string could still begin in it?"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Match:
    end: int
    start: int
    stop_string: str


class StopStringWatcher:
    """Follows the text of one answer, and cuts it before the stop string that is complete first.

    Of several stop strings that are complete with the same character, the longest counts, which begins first.
    So each character decides at once, and it does not matter into which pieces tokens cut the text: waiting for a
    longer string that begins earlier would need tokens after the one that ends the request.

    Args:
        stop_strings: None of them empty.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        self._stop_strings = tuple(stop_strings)
        self._held_text = ""
        self.stop_string: str | None = None
        """The stop string that ended the text, or None while there is none."""

    def feed(self, text: str, *, can_stop: bool = True) -> str:
        """Takes the next text that will not change any more, and gives what can be shown.

        Held back is the longest tail that is the beginning of a stop string, and nothing else. Once a stop string
        has been found, nothing is shown any more.

        Args:
            text: What follows all text fed before; may be empty.
            can_stop: Whether a stop string may be complete with this text. Where not, one that is complete within it
                is text like any other, but one may begin in it.
        """
        if self.stop_string is not None:
            return ""
        num_held = len(self._held_text)
        known_text = self._held_text + text
        match = self._first_match(known_text, num_held) if can_stop else None
        if match is not None:
            self.stop_string = match.stop_string
            self._held_text = ""
            return known_text[: match.start]
        num_shown = len(known_text) - self._num_to_hold(known_text)
        self._held_text = known_text[num_shown:]
        return known_text[:num_shown]

    def finish(self) -> str:
        """Gives the text that is held back still, since no more text follows."""
        held_text, self._held_text = self._held_text, ""
        return held_text

    def _first_match(self, text: str, num_old: int) -> _Match | None:
        """Finds the stop string that is complete first, among those that end behind the first characters."""
        matches = []
        for stop_string in self._stop_strings:
            start = text.find(stop_string, max(0, num_old + 1 - len(stop_string)))
            if start >= 0:
                matches.append(_Match(start + len(stop_string), start, stop_string))
        return min(matches, key=lambda match: (match.end, match.start), default=None)

    def _num_to_hold(self, text: str) -> int:
        """Counts the characters of the longest tail that is a beginning of a stop string, but not all of it."""
        return max((_num_begun(text, stop_string) for stop_string in self._stop_strings), default=0)


def _num_begun(text: str, stop_string: str) -> int:
    for length in range(min(len(text), len(stop_string) - 1), 0, -1):
        if text.endswith(stop_string[:length]):
            return length
    return 0
