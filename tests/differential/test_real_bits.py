"""SmolLM2 in the invariant manner: 24 requests in random schedules give the bits that each gives alone.

Needs the fetched model.
"""

import sys

import numpy as np
import pytest
import torch

from oracle.subjects import RefinferSubject

pytestmark = [pytest.mark.real_model, pytest.mark.without_shape_checks]

NUM_REQUESTS, NUM_SCHEDULES = 24, 10
MAX_TOKENS = 70
"""One more than a tile of keys, so that some requests reach into the second."""


def drawn_schedule(generator, requests):
    """A random order, random cuts (often one token at a time at the end), random arrivals, a random batch limit."""
    order = generator.permutation(len(requests))
    cuts = []
    for index in order:
        length = len(requests[index])
        num_decoded = int(generator.integers(0, min(8, length)))
        inside = generator.integers(1, length, size=int(generator.integers(0, 4))) if length > 1 else []
        own = {int(cut) for cut in inside} | set(range(length - num_decoded, length))
        cuts.append(tuple(sorted(own - {0})))
    arrivals = [int(step) for step in generator.integers(0, 6, size=len(requests))]
    return order, cuts, arrivals, int(generator.integers(1, len(requests) + 1))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_requests_keep_their_bits_in_any_schedule(smollm2, dtype, capsys, record_property):
    generator = np.random.Generator(np.random.Philox(24))
    subject = RefinferSubject(smollm2, "continuous", dtype=dtype, max_num_seqs=NUM_REQUESTS)
    requests = [generator.integers(0, 49152, size=int(size)).tolist() for size in generator.integers(1, 45, size=22)]
    requests += [generator.integers(0, 49152, size=size).tolist() for size in (64, MAX_TOKENS)]
    alone = [subject.all_logits(request) for request in requests]
    num_rows = 0
    for schedule in range(NUM_SCHEDULES):
        order, cuts, arrivals, max_num_seqs = drawn_schedule(generator, requests)
        token_ids = [requests[index] for index in order]
        logits = subject.run_chunks(token_ids, cuts, arrivals, max_num_seqs=max_num_seqs)
        for index, own_cuts, own in zip(order, cuts, logits, strict=True):
            rows = [end - 1 for end in (*own_cuts, len(requests[index]))]
            assert torch.equal(own, alone[index][rows]), f"schedule {schedule}, request {index}, cut at {own_cuts}"
            num_rows += len(rows)
    figure = f"{num_rows} rows of {NUM_REQUESTS} requests in {NUM_SCHEDULES} schedules, 0 differ"
    record_property(f"bits of SmolLM2 in {dtype}", figure)
    with capsys.disabled():
        sys.stdout.write(f"\n  {dtype}, {torch.get_num_threads()} threads: {figure}\n")
