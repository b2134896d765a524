"""Which decoders promise that text stands, and which do not."""

import json

import pytest
from tokenizers import Regex, decoders

from refinfer.tokenizer.decoder_rules import DecoderRules

LLAMA_2 = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def rules(*stages: decoders.Decoder) -> DecoderRules:
    decoder = stages[0] if len(stages) == 1 else decoders.Sequence(list(stages))
    return DecoderRules.from_state(json.loads(decoder.__getstate__()))


@pytest.mark.parametrize(
    "stages",
    [
        [decoders.ByteLevel()],
        [decoders.Metaspace()],
        [decoders.WordPiece()],
        [decoders.BPEDecoder()],
        LLAMA_2,
        [decoders.Sequence(LLAMA_2[:2]), *LLAMA_2[2:]],
        [decoders.ByteFallback(), decoders.ByteLevel()],
        [decoders.Strip(" ", 0, 1), decoders.Fuse()],
    ],
)
def test_decoder_rules_let_text_stream(stages):
    assert rules(*stages).is_streamable


@pytest.mark.parametrize(
    "stages",
    [
        [decoders.CTC()],
        [decoders.Fuse(), decoders.ByteLevel()],
        [decoders.ByteLevel(), decoders.ByteFallback()],
        [decoders.Fuse(), decoders.Strip(" ", 0, 1)],
        [decoders.Fuse(), decoders.Strip(" ", 5, 0)],
        [decoders.Replace("ab", "c")],
        [decoders.Replace(Regex("a+"), "c")],
        [decoders.Replace("\ufffd", "?")],
        [decoders.WordPiece(), decoders.Strip(" ", 0, 1)],
    ],
)
def test_decoder_rules_promise_nothing_where_later_tokens_reach_back(stages):
    assert not rules(*stages).is_streamable


def test_decoder_rules_let_text_stream_without_a_decoder():
    assert DecoderRules.from_state(None) == DecoderRules(is_streamable=True, has_byte_tokens=False)


@pytest.mark.parametrize(("stages", "has_byte_tokens"), [(LLAMA_2, True), ([decoders.ByteLevel()], False)])
def test_decoder_rules_see_byte_tokens(stages, has_byte_tokens):
    assert rules(*stages).has_byte_tokens == has_byte_tokens
