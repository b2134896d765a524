import pytest

from oracle.explain import sources
from oracle.subjects import MODES


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("model.layers.0.input_layernorm", "refinfer/model/norm.py"),
        ("model.layers.1.self_attn.k_proj", "refinfer/model/linear.py"),
        ("model.layers.1.self_attn.rope[1]", "refinfer/numerics/plain.py"),
        ("model.rotary_emb[0]", "refinfer/model/rope.py"),
        ("model.layers.0.mlp", "refinfer/model/mlp.py"),
        ("model.layers.0", "refinfer/model/llama.py"),
    ],
)
def test_module_stands_in_its_file(path, file):
    assert sources.sources_of_module(path)[0] == file


def test_every_mode_has_a_source():
    assert tuple(sources.CACHE_BY_MODE) == MODES


def test_every_named_source_exists(request):
    root = request.config.rootpath
    named = [value for name, value in vars(sources).items() if name.isupper() and isinstance(value, tuple)]
    files = {file for value in named for file in value}
    files |= {file for own in (*sources.CACHE_BY_MODE.values(), *sources._BY_MODULE.values()) for file in own}
    assert [file for file in sorted(files) if not (root / file).is_file()] == []
