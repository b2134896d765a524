"""How does a reader see what was found out? One page by itself, made from an explanation by templates."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from oracle.explain.explanation import Explanation
from oracle.explain.view.heat_chart import CELL, LABEL_ROW, heat_charts
from oracle.explain.view.ladder import features_by_need, minimal_sentence, rungs_of
from oracle.explain.view.step_chart import LANE, step_chart, words_of
from oracle.explain.view.timeline import lanes_of
from oracle.explain.view.verdict_table import verdict_table
from oracle.explain.view.words import headline, remarks
from oracle.templates import templates_of

_STYLE, _SCRIPT = "page.css", "page.js"


def write_page(explanation: Explanation, path: Path) -> None:
    """Writes a page that needs nothing but itself.

    Args:
        explanation: The explanation.
        path: The file; one that is there is replaced.
    """
    path.write_text(page_of(explanation), encoding="utf-8")


def page_of(explanation: Explanation) -> str:
    """Gives the page as HTML."""
    style, script = _source(_STYLE), _source(_SCRIPT)
    template = templates_of("oracle.explain").get_template("page.html")
    return template.render(
        _views(explanation), style=style, script=script, style_hash=_hash(style), script_hash=_hash(script)
    )


def _views(explanation: Explanation) -> dict[str, Any]:
    """Works out what the template only lays out."""
    scale, heat, equal = heat_charts(explanation)
    return {
        "explanation": explanation,
        "headline": headline(explanation),
        "remarks": remarks(explanation),
        "rungs": rungs_of(explanation),
        "features": features_by_need(explanation.features),
        "minimal": minimal_sentence(explanation),
        "table": verdict_table(explanation.checks),
        "chart": step_chart(explanation),
        "step_words": _step_words(explanation),
        "scale": scale,
        "heat": heat,
        "equal": equal,
        "scenario": json.dumps(explanation.scenario, indent=1),
        "LANE": LANE,
        "CELL": CELL,
        "LABEL_ROW": LABEL_ROW,
    }


def _step_words(explanation: Explanation) -> list[list[str]]:
    """Says of every step what each sample did in it."""
    lanes = lanes_of(explanation)
    return [
        [words_of(own, lane.name) for lane in lanes if not (own := lane.steps[place]).is_empty]
        for place in range(len(explanation.steps))
    ]


def _source(name: str) -> str:
    """Gives the text of a file beside the templates, the one that stands on the page letter for letter."""
    return templates_of("oracle.explain").get_template(name).render()


def _hash(text: str) -> str:
    """Gives what a browser holds a style or a script to before it lets it act."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
