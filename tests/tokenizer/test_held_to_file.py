"""A release of transformers that changes what tokenizer.json says is refused, whichever part it is."""

import pytest
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from refinfer.errors import CheckpointError
from refinfer.tokenizer import Tokenizer

UNKNOWN = "a"

PARTS = {
    "normalizer": normalizers.Prepend("▁"),
    "pre_tokenizer": pre_tokenizers.Metaspace(),
    "post_processor": processors.ByteLevel(),
    "decoder": decoders.Fuse(),
    "model": models.WordLevel({"a": 0}, unk_token=UNKNOWN),
}


@pytest.mark.parametrize("part", PARTS)
def test_from_folder_refuses_a_release_that_changes_what_tokenizer_json_says(byte_level, tmp_path, monkeypatch, part):
    byte_level.save(tmp_path)
    read = PreTrainedTokenizerFast.from_pretrained

    def changed(*arguments, **options):
        tokenizer = read(*arguments, **options)
        setattr(tokenizer.backend_tokenizer, part, PARTS[part])
        return tokenizer

    monkeypatch.setattr(PreTrainedTokenizerFast, "from_pretrained", changed)
    with pytest.raises(CheckpointError, match=rf"transformers .* changes the {part} of .*; install another release"):
        Tokenizer.from_folder(tmp_path)
