"""Draws steps, blocks and differences as SVG files that need nothing but themselves."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from oracle.errors import ScenarioError
from oracle.explain.course import HeatMap
from oracle.explain.view.heat_chart import CELL, LABEL_ROW, chart_of, scale_of
from oracle.explain.view.step_chart import LANE
from oracle.explain.view.step_chart import chart_of as steps_chart_of
from oracle.explain.view.timeline import lanes_in
from oracle.inspection.block_chart import COLUMN, ROW, block_chart
from oracle.inspection.watched import WatchedCase
from oracle.templates import templates_of

MOST_STEPS = 200
"""Steps that are drawn; a run that does not end by itself has thousands."""

_MARGIN, _LEGEND_ROW, _HEAD = 16, 24, 62
_NARROWEST, _WIDEST_LEGEND = 640, 1100
_ROOM_OF_A_LETTER = 7.2
"""Of the legend's text, a little more than wide letters need."""


class LegendEntry(NamedTuple):
    """One sign with its words.

    Attributes:
        x: Left edge.
        y: Upper edge.
        kind: Which sign; the template knows how it is drawn.
        words: What it stands for.
    """

    x: float
    y: float
    kind: str
    words: str


class Legend(NamedTuple):
    """Signs in as many lines as they need.

    Attributes:
        entries: The signs.
        height: Of all lines.
    """

    entries: tuple[LegendEntry, ...]
    height: int


def legend_of(words_by_kind: dict[str, str], width: int) -> Legend:
    """Lays signs out in lines of a width."""
    entries, x, y = [], 0.0, 0
    for kind, words in words_by_kind.items():
        room = 34 + len(words) * _ROOM_OF_A_LETTER + 14
        if x and x + room > width:
            x, y = 0.0, y + _LEGEND_ROW
        entries.append(LegendEntry(x, y, kind, words))
        x += room
    return Legend(tuple(entries), y + _LEGEND_ROW)


def steps_picture(watched: WatchedCase) -> str:
    """Draws requests × steps.

    Raises:
        ScenarioError: No step was taken.
    """
    steps = watched.course[:MOST_STEPS]
    if not steps:
        message = "the run has no step that could be drawn; its message says what came before the first"
        raise ScenarioError(message)
    chart = steps_chart_of(steps, lanes_in(steps, watched.prompt_lengths))
    words = {
        "prefill": "prefill, with the tokens that run",
        "decode": "decoding; after a plus the guessed tokens",
        "running": "runs, without tokens in this step",
        "waiting": "waiting",
        "preempted": "preempted, out of the run",
        "sign-preempted": "preempted",
    }
    kinds = [kind for kind in words if kind in chart.kinds]
    kinds += [f"sign-{kind.replace(' ', '-')}" for kind in dict.fromkeys(sign.kind for sign in chart.signs)]
    legend = {kind: words.get(kind, kind.removeprefix("sign-").replace("-", " ")) for kind in kinds}
    if chart.blocks_top is not None:
        legend |= {"used": "blocks held", "cached": "kept by the prefix map only", "free": "free"}
    return _drawn("steps.svg", "Steps and requests", watched.title + _cut(watched), chart, legend, LANE=LANE)


def blocks_picture(watched: WatchedCase) -> str:
    """Draws blocks × steps.

    Raises:
        ScenarioError: The run has no pool, or no step was taken.
    """
    if watched.blocks is None or not watched.blocks.moments:
        message = f"mode {watched.mode!r} has no blocks to be drawn, or no step was taken; run it in a paged mode"
        raise ScenarioError(message, mode=watched.mode)
    chart = block_chart(watched.blocks, MOST_STEPS)
    by_hue: dict[int, list[str]] = {}
    for request, hue in chart.requests:
        by_hue.setdefault(hue, []).append(str(request))
    legend = {f"hue-{hue}": f"request {', '.join(requests)}" for hue, requests in by_hue.items()}
    signs = (
        ("shared", "shared", any(bar.is_shared for bar in chart.bars)),
        ("pinned", "the prefix map finds it", any(bar.is_pinned for bar in chart.bars)),
        ("kept", "kept by the prefix map only", any(not bar.hue for bar in chart.bars)),
        ("write", "written in this step", bool(chart.writes)),
    )
    legend |= {kind: words for kind, words, is_drawn in signs if is_drawn}
    unused = f"; {chart.num_unused} more that nobody ever held" if chart.num_unused else ""
    subtitle = f"{watched.title}; blocks of {watched.blocks.block_size} token places{unused}{_cut(watched)}"
    return _drawn("blocks.svg", "Blocks and steps", subtitle, chart, legend, COLUMN=COLUMN, ROW=ROW)


def heat_picture(title: str, subtitle: str, heat: HeatMap, near: Sequence[tuple[int, int, float]] = ()) -> str:
    """Draws differences by line and position.

    Args:
        title: What is compared.
        subtitle: More about it.
        heat: The differences.
        near: Line, position and size of those that rounding explains.
    """
    scale = scale_of([heat])
    chart = chart_of(title, heat, scale)
    legend = {"equal": "equal bit for bit"} if chart.dots else {}
    if near:
        legend["near"] = f"near, {max(size for _, _, size in near):.1g} at most"
    if any(square.shade for square in chart.squares):
        legend |= {f"heat-{shade}-{size}": words for shade, size, words in scale.legend}
    if any(not square.shade for square in chart.squares):
        legend["broken"] = "not a number, or of another shape"
    places = [
        (position * CELL, LABEL_ROW + line * CELL, f"{heat.rows[line]}, position {position}: {size!r}, near")
        for line, position, size in near
    ]
    return _drawn("heat.svg", title, subtitle, chart, legend, CELL=CELL, LABEL_ROW=LABEL_ROW, near=places)


def _cut(watched: WatchedCase) -> str:
    """Says what is left out of a long run."""
    num_steps = len(watched.steps)
    return f"; the first {MOST_STEPS} of {num_steps} steps" if num_steps > MOST_STEPS else ""


def _drawn(template: str, title: str, subtitle: str, chart: Any, legend: dict[str, str], **more: Any) -> str:
    head = max(_NARROWEST, round(max(len(title) * 9.5, len(subtitle) * _ROOM_OF_A_LETTER)))
    width = max(chart.room + chart.width, head)
    laid = legend_of(legend, min(width, _WIDEST_LEGEND))
    templates = templates_of("oracle.inspection", "oracle.explain")
    return templates.get_template(template).render(
        title=title,
        subtitle=subtitle,
        chart=chart,
        legend=laid,
        width=width + 2 * _MARGIN,
        height=_HEAD + laid.height + chart.height + 2 * _MARGIN,
        top=_HEAD + laid.height + _MARGIN // 2,
        head=_HEAD,
        MARGIN=_MARGIN,
        **more,
    )
