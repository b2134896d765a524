"""A record holds what a request ran and emitted."""

import torch

from oracle.subjects import RequestRecord


def test_token_ids_are_prompt_and_output():
    record = RequestRecord((1, 2), (3,), torch.zeros(1, 5), "length", (1,))
    assert record.token_ids == (1, 2, 3)
