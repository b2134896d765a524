"""Is what a request gave what its own logits and parameters say? Asked of a second way, not of `refinfer.sampling`."""

from oracle.drive import DrivenRequest
from oracle.lone_answer import Surroundings
from oracle.sampling_witness import Sample, judge_sample


def judge_request(driven: DrivenRequest, around: Surroundings, what: str) -> int:
    """Holds every sample of a request to what its logits say.

    Args:
        driven: The request, with what it gave.
        around: What an answer depends on besides.
        what: How messages name it.

    Returns:
        How many tokens were judged.

    Raises:
        TokenMismatch: A token is not the one that had to be picked.
        OutcomeMismatch: A log-probability, a rank, or the end is wrong.
    """
    request = driven.request
    num_judged = 0
    for index, run in enumerate(driven.samples()):
        output = run.output
        sample = Sample(
            params=request.params,
            seed=request.seed,
            sample_index=index,
            prompt_token_ids=request.prompt_token_ids,
            output_token_ids=tuple(output.token_ids),
            eos_token_ids=around.eos_token_ids,
            max_model_len=around.max_model_len,
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            logprobs=None
            if output.logprobs is None
            else [{token_id: (own.logprob, own.rank) for token_id, own in by_id.items()} for by_id in output.logprobs],
        )
        num_judged += judge_sample(sample, run.logits, f"{what}, sample {index}")
    return num_judged
