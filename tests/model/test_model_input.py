"""What the model is given in one step."""

import torch

from refinfer.cache import CausalAttentionView
from refinfer.model.model_input import ModelInput


def test_pack_lays_rows_behind_each_other_with_their_own_positions():
    packed = ModelInput.pack([[5, 6, 7], [8]], [0, 4], [1, 1])
    assert packed.input_ids.tolist() == [5, 6, 7, 8]
    assert packed.position_ids.tolist() == [0, 1, 2, 4]
    assert (packed.num_tokens, packed.num_logits) == ((3, 1), (1, 1))


def test_run_gives_each_row_the_logits_that_it_wants(model_by_dtype):
    model = model_by_dtype["float64"]
    packed = ModelInput.pack([[5, 6, 7], [8, 9], [3]], [0, 0, 0], [2, 0, 1])
    found = packed.run(model, CausalAttentionView(packed.num_tokens))
    assert [len(own) for own in found] == [2, 0, 1]
    for token_ids, own in (([5, 6, 7], found[0]), ([3], found[2])):
        alone = model.forward(
            torch.tensor(token_ids), torch.arange(len(token_ids)), CausalAttentionView([len(token_ids)])
        )
        assert abs(own - alone.numpy()[len(token_ids) - len(own) :]).max() < 1e-12
