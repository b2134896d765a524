"""Faults that generated schedules hardly reach do change what happens, on a case made for each of them."""

from dataclasses import replace

import numpy as np
import pytest

from oracle.case import Case
from oracle.checkpoint_spec import CheckpointSpec
from oracle.faults import FAULTS
from oracle.scenario import RequestSpec, Scenario
from refinfer import EngineConfig, LLMEngine, RequestOutput, SamplingParams
from refinfer.cache.block_pool import BlockPool
from refinfer.cache.prefix import PrefixMap
from refinfer.engine.speculation import Speculation
from refinfer.sampling import SampleContext
from refinfer.scheduler import ContinuousScheduler, Request, RequestState
from refinfer.speculative import NgramProposer, verifier

pytestmark = pytest.mark.without_shape_checks

SPEC = CheckpointSpec(num_layers=1, vocab_size=97)
PROMPT = [5, 9, 3, 17, 2, 30, 11, 8]
GO_ON = SamplingParams(max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module", name="case")
def _case():
    return Case(Scenario(requests=(RequestSpec((1,)),), checkpoint=SPEC))


@pytest.fixture(name="new_engine")
def _new_engine(case):
    def new_engine(**options):
        return LLMEngine(case.loaded(batch_invariant=True), EngineConfig(max_model_len=32, block_size=4, **options))

    return new_engine


def drain(engine):
    """The tokens of every answer by request."""
    last: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests():
        last.update((output.request_id, output) for output in engine.step())
    return {name: [answer.token_ids for answer in output.outputs] for name, output in last.items()}


def hit_beside_a_miss(engine):
    engine.add_request("first", PROMPT, GO_ON)
    drain(engine)
    engine.add_request("hit", [*PROMPT, 4, 4, 6], GO_ON)
    engine.add_request("miss", [70, 71, 72, 73, 74, 75], GO_ON)
    return drain(engine)


def test_misses_read_from_first_block_only_beside_a_hit(new_engine):
    right, alone = hit_beside_a_miss(new_engine()), new_engine()
    with FAULTS["misses_read_from_first_block"].planted():
        wrong = hit_beside_a_miss(new_engine())
        alone.add_request("miss", [70, 71, 72, 73, 74, 75], GO_ON)
        assert drain(alone)["miss"] == right["miss"]
    assert wrong["hit"] == right["hit"]
    assert wrong["miss"] != right["miss"]


def num_right_guesses(engine, prompts):
    for name, prompt in enumerate(prompts):
        engine.add_request(str(name), prompt, GO_ON)
        drain(engine)
    return engine.stats().num_accepted_tokens


def test_draft_skips_cached_tokens_only_after_a_hit(new_engine, case):
    def new():
        return new_engine(speculative=str(case.folder), num_speculative_tokens=3)

    hit, miss = [PROMPT, [*PROMPT, 4, 4]], [PROMPT, [50, 51, 52, 53, 54, 55, 4]]
    right = num_right_guesses(new(), hit)
    right_without = num_right_guesses(new(), miss)
    with FAULTS["draft_skips_cached_tokens"].planted():
        assert num_right_guesses(new(), hit) < right
        assert num_right_guesses(new(), miss) == right_without


def test_abort_leaves_draft_blocks(new_engine, case):
    def num_free_blocks_lost():
        engine = new_engine(speculative=str(case.folder), num_speculative_tokens=3)
        proposer = engine.core._speculation._proposer
        num_free = proposer.num_free_blocks
        engine.add_request("a", PROMPT, GO_ON)
        engine.step()
        engine.step()
        engine.abort_request("a")
        return num_free - proposer.num_free_blocks

    assert num_free_blocks_lost() == 0
    with FAULTS["abort_leaves_draft"].planted():
        assert num_free_blocks_lost() > 0


def test_abort_reaches_the_first_sample_only(new_engine):
    params = replace(GO_ON, n=2)
    with FAULTS["abort_reaches_the_first_sample_only"].planted():
        engine = new_engine()
        engine.add_request("a", PROMPT, params)
        engine.step()
        assert [answer.finish_reason for answer in engine.abort_request("a").outputs] == ["abort", None]
        assert engine.has_unfinished_requests()


def test_part_of_prompt_told_without_a_token(new_engine):
    def num_tokens_told():
        engine = new_engine(max_num_batched_tokens=3)
        engine.add_request("a", PROMPT, GO_ON)
        return [len(output.outputs[0].token_ids) for _ in range(3) for output in engine.step()]

    assert num_tokens_told() == [1]
    with FAULTS["part_of_prompt_told"].planted():
        assert num_tokens_told() == [0, 0, 1]


def test_tied_head_left_random_is_another_model():
    scenario = Scenario(requests=(RequestSpec((1,)),), checkpoint=replace(SPEC, tie_word_embeddings=True))
    right = Case(scenario).loaded(batch_invariant=True).model
    with FAULTS["tied_head_left_random"].planted():
        wrong = Case(scenario).loaded(batch_invariant=True).model
    assert right.lm_head.weight is right.embedding_weight
    assert wrong.lm_head.weight is not wrong.embedding_weight
    assert (wrong.lm_head.weight != wrong.embedding_weight).all()


def found_after_an_eviction():
    """Publishes two prompts, finds the older one again, and gives up one block; tells which can still be found."""
    pool = BlockPool(3)
    prefix = PrefixMap(pool, block_size=1)
    for token_id in (7, 8):
        (block_id,) = pool.allocate(1)
        prefix.publish([token_id], [block_id], 1, None)
        pool.release([block_id])
    prefix.match([7], None, 1)
    prefix.evict(1)
    return [token_id for token_id in (7, 8) if prefix.match([token_id], None, 1)[1]]


def test_hits_do_not_refresh_what_was_found():
    assert found_after_an_eviction() == [7]
    with FAULTS["hits_do_not_refresh"].planted():
        assert found_after_an_eviction() == [8]


def test_guesses_past_max_model_len():
    speculation = Speculation(NgramProposer(), 4, eos_token_ids=frozenset(), max_model_len=10)
    scheduler = ContinuousScheduler(1)
    state = RequestState(Request("a", None, (1, 2, 1, 2, 1, 2, 1, 2), SamplingParams(max_tokens=None)))
    scheduler.add(state)
    scheduler.admit()
    state.num_computed_tokens = 7
    assert [len(draft.token_ids) for draft in speculation.propose(scheduler)] == [1]
    with FAULTS["guesses_past_max_model_len"].planted():
        assert [len(draft.token_ids) for draft in speculation.propose(scheduler)] == [4]
    assert speculation._max_model_len == 10


def test_verified_with_cuts_in_other_order_where_the_cuts_depend_on_each_other():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], dtype=np.float32))
    params = SamplingParams(temperature=1.0, top_k=2, top_p=0.5)
    context = SampleContext(params, 0, 0, (1,), (), frozenset())
    right = vars(verifier)["probabilities"](logits, context)
    with FAULTS["verified_with_cuts_in_other_order"].planted():
        wrong = vars(verifier)["probabilities"](logits, context)
    assert np.count_nonzero(right) == 1
    assert np.count_nonzero(wrong) == 2
