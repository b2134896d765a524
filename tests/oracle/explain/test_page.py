"""A page stands by itself, shows every figure, lets nothing hostile act, and says what is lacking."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.explain.clues import Blame, FirstOperation, Place
from oracle.explain.explanation import CheckFigure
from oracle.explain.page import page_of, write_page

FEW = settings(max_examples=max(5, settings().max_examples // 5), deadline=None)
VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\" ' & </pre></style>{{ 7 * 7 }}"


class Reader(HTMLParser):
    """Reads a page: its elements, its text, and whether every element is closed in order."""

    def __init__(self, page):
        super().__init__()
        self.elements = []
        self.texts = []
        self.open = []
        self.misplaced = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self):
        """What can be read, titles of drawings included."""
        return " ".join("".join(self.texts).split())

    def attributes(self, *names):
        """The values of some attributes."""
        return [values[name] for _, values in self.elements for name in names if name in values]

    def with_tag(self, tag):
        """The attributes of the elements of a tag."""
        return [values for own, values in self.elements if own == tag]


def read(explanation):
    """The page of an explanation."""
    return Reader(page_of(explanation))


@FEW
@given(st.data())
def test_page_is_well_formed_and_refers_to_nothing_outside_it(explanations, data):
    page = read(data.draw(explanations))
    assert page.misplaced == []
    assert page.open == []
    references = page.attributes("href", "src", "action", "xlink:href", "srcset", "poster")
    assert all(own.startswith(("#", "data:application/json")) for own in references)
    ids = page.attributes("id")
    assert len(set(ids)) == len(ids)
    targets = {own[1:] for own in references if own.startswith("#")}
    targets |= {name for own in page.attributes("aria-labelledby", "data-copies", "data-heat") for name in own.split()}
    assert targets <= set(ids)


@FEW
@given(st.data())
def test_page_shows_every_row_of_every_step(explanations, data):
    explanation = data.draw(explanations)
    text = read(explanation).text
    for step in explanation.steps:
        for row in step.rows:
            assert f"of {row.num_tokens} tokens from position {row.start}" in text
            assert " ".join(map(str, row.token_ids)) in text


def test_page_loads_nothing(whole):
    page = read(whole)
    assert not {tag for tag, _ in page.elements} & {
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "base",
        "audio",
        "video",
    }
    style = page_of(whole).partition("<style>")[2].partition("</style>")[0]
    assert style
    assert re.findall(r"url\((.*?)\)|@import", style) == ["#hatch"]


def test_page_shows_every_figure(whole):
    text = read(whole).text
    for figure in (
        "schedules fails on paged; to blame: cache, swapping blocks.",
        "1 of 3 verdicts on this case are against the subject",
        "The failure came while everything was watched.",
        "Explained in 1.5 s.",
        whole.command,
        whole.message,
        "refinfer/cache/paged.py",
        "0.251235",
        "0.751235",
        "0.00012345",
        "wrong",
        "0.512346",
        "0.0123456",
        "2 steps later",
        "6.21624",
        "something else",
        "step 0",
        "every operation follows",
        "Enough to fail, with every other feature turned off: swap.",
        "preempted requests recompute",
        "one request at a time",
        "no request is aborted",
        "token_ids differ",
        "prefill of 3 tokens from position 0, emits 7",
        "decode of 3 tokens from position 3, 2 of them guessed, emits 8 9",
        "preempted (swap)",
        "finished (length)",
        "1 to 4",
        "3.5e-07",
        "layers.0, position 2: not a number",
        "Request 1: each of 3 places that were compared is equal bit for bit.",
    ):
        assert figure in text, figure


def test_page_keeps_all_digits(whole):
    page = read(whole)
    kept = {own["value"] for own in page.with_tag("data")}
    assert {"0.2512345", "0.7512345", "0.00012345", "0.5123456", "0.0123456", "6.216242"} <= kept


def test_page_shows_the_case_as_json_to_be_saved(whole):
    page = read(whole)
    (link,) = [own for own in page.with_tag("a") if "download" in own]
    assert json.loads(unquote(link["href"].partition(",")[2])) == whole.scenario
    assert json.dumps(whole.scenario, indent=1) in "".join(page.texts)


def test_hostile_text_is_shown_and_does_nothing(whole):
    place = Place(0, 0, 0, 0, 0)
    hostile = replace(
        whole,
        subject=HOSTILE,
        check=HOSTILE,
        message=HOSTILE,
        blame=Blame(HOSTILE, HOSTILE, (HOSTILE,), HOSTILE),
        checks=(CheckFigure(HOSTILE, HOSTILE, "fail", HOSTILE),),
        token=replace(whole.token, got=HOSTILE, due=HOSTILE, what=HOSTILE),
        operation=FirstOperation(HOSTILE, place, 1.0, 0.0, (HOSTILE,), HOSTILE),
        features=tuple(replace(own, name=HOSTILE, change=HOSTILE) for own in whole.features),
        heat=tuple(replace(own, rows=(HOSTILE,) * len(own.rows)) for own in whole.heat),
        scenario={"requests": [], "texts": [HOSTILE]},
        command=HOSTILE,
    )
    calm, page = read(whole), read(hostile)
    assert page.misplaced == []
    assert len(page.with_tag("script")) == len(calm.with_tag("script")) == 1
    assert page.with_tag("img") == []
    assert not [name for _, own in page.elements for name in own if name.startswith("on")]
    assert " ".join(HOSTILE.split()) in page.text


def test_page_lets_only_its_own_style_and_script_act(whole):
    html = page_of(whole)
    (policy,) = [
        own["content"] for own in Reader(html).with_tag("meta") if "content" in own and "-src" in own["content"]
    ]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        text = html.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert Reader(html).attributes("style") == []


def test_page_says_what_is_lacking(bare):
    text = read(bare).text
    for sentence in (
        "tokens fails",
        "what is to blame is not known.",
        "No source file is named",
        "The run was not watched from inside.",
        "No answer: token cannot be seen.",
        "No answer: operation cannot be seen.",
        "what the failure needs is not known",
        "This explanation holds no steps",
        "This explanation holds no differences",
        "No other check was run on this case.",
    ):
        assert sentence in text, sentence
    assert "<table" not in page_of(bare)


def test_page_says_that_blocks_are_not_told_of(whole):
    steps = tuple(
        replace(step, num_used_blocks=None, num_cached_blocks=None, num_free_blocks=None) for step in whole.steps
    )
    assert "Blocks are not shown" in read(replace(whole, steps=steps)).text
    assert "Blocks are not shown" not in read(whole).text


@pytest.mark.parametrize("level", ["h1", "main", "header", "nav"])
def test_page_has_one_of_each_landmark(whole, level):
    assert len(read(whole).with_tag(level)) == 1


def test_headings_leave_out_no_level(whole):
    levels = [int(tag[1]) for tag, _ in read(whole).elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_page_is_written_as_it_is_made(whole, tmp_path):
    write_page(whole, tmp_path / "page.html")
    assert (tmp_path / "page.html").read_bytes().decode() == page_of(whole)
