"""Does each request end, read and score as it should, once its tokens are what they are?"""

from collections.abc import Callable, Iterator, Sequence

from oracle.drive import DrivenRequest
from oracle.errors import OutcomeMismatch
from oracle.explain import sources
from oracle.explain.clues import Place
from oracle.explain.suspicion import Moment, Suspect, Suspicion
from oracle.lone_answer import PromptLogprobs, SampleRun
from oracle.sampling_effects import check_logprobs
from oracle.scenario import RequestSpec
from oracle.schedule_compare import check_stop_strings, check_whole_text
from refinfer.tokenizer import Tokenizer

_ENDS = Suspect("stop rules", "when a request ends", sources.STOPPING)
_UNENDED = Suspect("scheduler", "telling whether a request is left", (*sources.STATIC_POLICY, *sources.QUEUES[:1]))
_STRINGS = Suspect("stop rules", "stop strings", sources.STRINGS)
_TEXT = Suspect("detokenizer", "putting text together", sources.DETOKENIZER)
_ANSWER = Suspect("answer", "collecting what came out", ("refinfer/engine/answer.py", "refinfer/engine/core.py"))
_SCORES = Suspect("log-probabilities", "looking them up", sources.LOGPROBS)
_PROMPT_SCORES = Suspect("log-probabilities", "of the prompt", ("refinfer/engine/core.py", *sources.SPACE))


class EndingSigns:
    """Looks at what came out of one request in the end.

    Args:
        spec: What was asked for.
        driven: What came out.
        place: Which request it is.
        last_step: When each of its samples emitted its last token.
        max_model_len: The longest that it may be, prompt and output together.
        is_exact: Whether its scores have to be those of the request alone to the last bit.
    """

    def __init__(
        self,
        spec: RequestSpec,
        driven: DrivenRequest,
        place: int,
        last_step: dict[tuple[int, int], int],
        *,
        max_model_len: int,
        is_exact: bool,
    ) -> None:
        self._max_model_len = max_model_len
        self._is_exact = is_exact
        self._spec = spec
        self._driven = driven
        self._place = place
        self._last_step = last_step

    def all(
        self, expected: Sequence[SampleRun], tokenizer: Tokenizer | None, eos_token_ids: frozenset[int]
    ) -> Iterator[Suspicion]:
        """Gives what went wrong, sample by sample."""
        for own, alone in zip(self._driven.samples(), expected, strict=False):
            yield from self._ends(own, eos_token_ids)
            yield from self._plain(own, tokenizer)
            yield from self._unlike_alone(own, alone)

    def _ends(self, own: SampleRun, eos_token_ids: frozenset[int]) -> Iterator[Suspicion]:
        output = own.output
        if output.finish_reason is None:
            yield self._sign(own, 2, _UNENDED, f"request {self._place} has not ended, and no step is left")
            return
        if output.finish_reason == "abort" or isinstance(output.stop_reason, str):
            return
        due = due_end(self._spec, output.token_ids, eos_token_ids, self._max_model_len)
        got = (len(output.token_ids), output.finish_reason)
        if due != got:
            what = f"request {self._place} ends after {got[0]} tokens ({got[1]}), and {due[0]} ({due[1]}) were due"
            yield self._sign(own, 2, _ENDS, what)

    def _plain(self, own: SampleRun, tokenizer: Tokenizer | None) -> Iterator[Suspicion]:
        checks: tuple[tuple[Callable[[], None], Suspect], ...] = (
            (lambda: check_stop_strings(own, self._driven.request.params, tokenizer, "stop strings"), _STRINGS),
            (lambda: check_whole_text(own, tokenizer, "text"), _STRINGS if self._spec.sampling.stop else _TEXT),
            (lambda: _check_scores(self._spec, own), _SCORES),
        )
        for rank, (check, suspect) in enumerate(checks, start=3):
            try:
                check()
            except OutcomeMismatch as error:
                yield self._sign(own, rank, suspect, str(error))

    def _unlike_alone(self, own: SampleRun, alone: SampleRun) -> Iterator[Suspicion]:
        output, other = own.output, alone.output
        for name in ("logprobs", "token_ids"):
            told = getattr(output, name)
            if told is not None and len(told) != len(own.logits):
                what = f"request {self._place} is told {len(told)} {name}, and emitted {len(own.logits)} tokens"
                yield self._sign(own, 1, _ANSWER, what)
        if output.token_ids != other.token_ids or output.finish_reason != other.finish_reason:
            return
        if output.text != other.text:
            suspect = _STRINGS if self._spec.sampling.stop else _TEXT
            what = f"request {self._place} reads {output.text!r}, and alone {other.text!r}"
            yield self._sign(own, 6, suspect, what)
        if self._is_exact and output.logprobs != other.logprobs:
            what = f"log-probabilities of request {self._place} are not those of the same tokens alone"
            yield self._sign(own, 7, _SCORES, what)
        if self._is_exact and own.prompt_logprobs != alone.prompt_logprobs:
            what = f"log-probabilities of the prompt of request {self._place} are not those of the request alone"
            is_scoring = _are_of_the_same_rows(own.prompt_logprobs, alone.prompt_logprobs)
            yield self._sign(own, 8, _SCORES if is_scoring else _PROMPT_SCORES, what)

    def _sign(self, own: SampleRun, rank: int, suspect: Suspect, what: str) -> Suspicion:
        index = own.output.index
        step = self._last_step.get((self._place, index), 0)
        position = len(self._spec.prompt_token_ids) + len(own.output.token_ids) - 1
        place = Place(step, self._place, index, position)
        return Suspicion(step, Moment.EMITTED, rank, suspect, what, place)


def _are_of_the_same_rows(own: PromptLogprobs, alone: PromptLogprobs) -> bool:
    """Tells whether wrong log-probabilities are of the right logits, since some of the first wrong ones are right."""
    for scores, due in zip(own or (), alone or (), strict=False):
        if scores and due and scores != due:
            return any(listed in due and entry.logprob == due[listed].logprob for listed, entry in scores.items())
    return False


def due_end(
    spec: RequestSpec, token_ids: Sequence[int], eos_token_ids: frozenset[int], max_model_len: int
) -> tuple[int, str]:
    """Gives after how many of some tokens a request has to end, and why; one more where none of them ends it."""
    ends = set(spec.sampling.stop_token_ids) | (set() if spec.ignore_eos else set(eos_token_ids))
    most = min(spec.max_tokens, max_model_len - len(spec.prompt_token_ids))
    for number, token_id in enumerate(token_ids, start=1):
        if token_id in ends and number > spec.sampling.min_tokens:
            return number, "stop"
        if number == most:
            return number, "length"
    return len(token_ids) + 1, "length"


def _check_scores(spec: RequestSpec, own: SampleRun) -> None:
    output = own.output
    told = output.token_ids if output.logprobs is None else output.logprobs
    if len(own.logits) == len(output.token_ids) == len(told):  # else what was told is a sign already
        check_logprobs(output.logprobs, own.logits, spec.sampling.logprobs, output.token_ids)
