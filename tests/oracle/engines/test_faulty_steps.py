import pytest

from oracle.engines.faulty_steps import _MovedCache
from refinfer import load_model
from refinfer.cache import ContinuousCache


@pytest.mark.parametrize(("num_more", "is_equal"), [(0, True), (1, False)])
def test_moved_cache_changes_positions_and_nothing_else(folder, num_more, is_equal):
    model = load_model(folder)
    caches = [ContinuousCache(model.config, model.dtype) for _ in range(2)]
    for cache in caches:
        model.prefill([[5, 3, 8]], [cache])
    plain = model.prefill([[2]], [caches[0]])
    moved = model.prefill([[2]], [_MovedCache(caches[1], num_more)])
    assert plain.equal(moved) is is_equal
    assert [cache.num_computed_tokens for cache in caches] == [4, 4]
