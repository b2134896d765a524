"""How far was the ladder climbed? Each rung with its verdict, its sentence and its figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.explain.clues import FirstOperation, FirstRead, FirstToken, FirstWrite
from oracle.explain.explanation import Explanation, Feature, Need
from oracle.explain.view.words import Fact, facts_of_place, listed, measured, number

_TITLES = {
    "token": "First output that parts",
    "write": "First key or value that was computed otherwise",
    "read": "First key or value that was read otherwise than written",
    "operation": "First operation to blame",
    "features": "What the failure needs",
}
_UNSEEN = "It was not looked for."


@dataclass(frozen=True)
class RungView:
    """One rung, as it is shown.

    Attributes:
        name: Its name.
        title: What it asks.
        is_reached: Whether it gave an answer.
        verdict: "wrong", "rounded" or "tied"; None where there is none to give.
        sentence: The answer, or why there is none.
        facts: The figures.
    """

    name: str
    title: str
    is_reached: bool
    verdict: str | None
    sentence: str
    facts: tuple[Fact, ...] = ()


def rungs_of(explanation: Explanation) -> list[RungView]:
    """Gives the rungs in the order in which they are climbed, those that gave no answer too."""
    token, write, read, operation = explanation.token, explanation.write, explanation.read, explanation.operation
    found = {
        "token": None if token is None else _token(token),
        "write": None if write is None else _write(write),
        "read": None if read is None else _read(read),
        "operation": None if operation is None else _operation(operation),
        "features": _features(explanation) if explanation.features else None,
    }
    notes = {rung.name: rung.note for rung in explanation.rungs}
    views = []
    for name, answer in found.items():
        if answer is None:
            note = notes.get(name)
            views.append(RungView(name, _TITLES[name], False, None, f"No answer: {note}." if note else _UNSEEN))  # noqa: FBT003
        else:
            sentence, facts = answer
            verdict = token.kind if name == "token" and token is not None else None
            views.append(RungView(name, _TITLES[name], True, verdict, sentence, tuple(facts)))  # noqa: FBT003
    return views


def features_by_need(features: Sequence[Feature]) -> list[tuple[Need, list[Feature]]]:
    """Sorts features by what they are to the failure; a need that no feature has is left out."""
    groups = [(need, [feature for feature in features if feature.need is need]) for need in Need]
    return [(need, own) for need, own in groups if own]


def minimal_sentence(explanation: Explanation) -> str:
    """Says what is enough to fail."""
    if explanation.minimal is None:
        return "A smallest set of features that still fails was not searched, or no time was left for it."
    if not explanation.minimal:
        return "The case fails with every one of these features turned off."
    return f"Enough to fail, with every other feature turned off: {', '.join(explanation.minimal)}."


def _token(token: FirstToken) -> tuple[str, list[Fact]]:
    came = f"Output {token.what} {token.got} came where {token.due} was due."
    if token.referee_margin is None or token.bound is None:
        judged = f"It is {token.kind}; no referee has scored both."
    else:
        judged = (
            f"The referee scores what was due {number(token.referee_margin)} above what came, "
            f"and rounding may decide within {number(token.bound)}: {token.kind}."
        )
    facts = [Fact("output", str(token.output_place)), *facts_of_place(token.place)]
    facts += [Fact("came", token.got), Fact("due", token.due)]
    facts += [
        measured("own margin, float64", token.own_margin),
        measured("referee's margin, float64", token.referee_margin),
        measured("bound of rounding", token.bound),
    ]
    return f"{came} {judged}", facts


def _write(write: FirstWrite) -> tuple[str, list[Fact]]:
    later = write.num_steps_before_token
    after = "No output parts after it." if later is None else f"The output parts {later} steps later."
    sentence = f"A {write.part} is not what the request computes when it runs alone. {after}"
    facts = [Fact("part", write.part), *facts_of_place(write.place)]
    return sentence, [*facts, measured("off by", write.largest), measured("permitted", write.bound)]


def _read(read: FirstRead) -> tuple[str, list[Fact]]:
    how = "the block tables lead to it" if read.is_bookkeeping else "the block tables are right, the tensor is not"
    part = f"a {read.part}" if read.part else "an entry"
    sentence = f"Attention reads {part} that is not what was written there. Found: {read.found}; {how}."
    written = "never" if read.written_step is None else f"step {read.written_step}"
    facts = [*([Fact("part", read.part)] if read.part else []), *facts_of_place(read.place)]
    return sentence, [*facts, Fact("written in", written), measured("off by", read.largest)]


def _operation(operation: FirstOperation) -> tuple[str, list[Fact]]:
    sentence = f"{operation.name}: what goes in agrees with the {operation.against} pass, and what comes out does not."
    facts = [Fact("inputs that agree", listed(operation.inputs, none="none")), *facts_of_place(operation.place)]
    facts += [Fact("held against", operation.against)]
    return sentence, [*facts, measured("off by", operation.largest), measured("permitted", operation.bound)]


def _features(explanation: Explanation) -> tuple[str, list[Fact]]:
    by_need = dict(features_by_need(explanation.features))
    needed = [feature.name for feature in by_need.get(Need.NEEDED, [])]
    facts = [Fact(str(need), str(len(by_need.get(need, [])))) for need in Need]
    return f"Needed: {listed(needed, none='no single feature')}. {minimal_sentence(explanation)}", facts
