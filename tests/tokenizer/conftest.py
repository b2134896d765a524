"""Tokenizers of the kinds that Llama checkpoints bring, built here in milliseconds."""

from collections.abc import Callable

import pytest
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend
from transformers import PreTrainedTokenizerFast

from refinfer.tokenizer import Tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It doesn't mind, and we've seen it before!",
    "def main(argv):\n    return 0  # « ça va ? » déjà vu, naïve",
    "日本語のテキスト、絵文字 👩‍👩‍👧 🙂 и немного кириллицы",
]
UNKNOWN, BOS, EOS = "<unk>", "<s>", "</s>"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def _add_tokens(backend: Backend) -> None:
    backend.add_special_tokens([BOS, EOS])
    backend.add_tokens([AddedToken("[tool]", special=False), AddedToken("\ufffd", special=False)])


def byte_level() -> PreTrainedTokenizerFast:
    """As Llama 3 and SmolLM2 have it."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=340, initial_alphabet=alphabet))
    _add_tokens(backend)
    bos = backend.token_to_id(BOS)
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[(BOS, bos)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=BOS, eos_token=EOS, clean_up_tokenization_spaces=True
    )


def byte_fallback(*more_stages: decoders.Decoder) -> PreTrainedTokenizerFast:
    """As Llama 2 and TinyLlama have it: what has no token is spelled in byte tokens."""
    pieces = [
        UNKNOWN,
        *BYTE_TOKENS,
        "",
        "▁",
        "▁▁",
        "é",
        *sorted(set("".join(CORPUS[:2]).replace(" ", "▁")) - {"▁", "é"}),
    ]
    backend = Backend(
        models.BPE({piece: i for i, piece in enumerate(pieces)}, [], byte_fallback=True, unk_token=UNKNOWN)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    stages = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence([*stages, *more_stages])
    _add_tokens(backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=UNKNOWN, bos_token=BOS, eos_token=EOS)


def metaspace() -> PreTrainedTokenizerFast:
    """A unigram vocabulary; transformers heeds `clean_up_tokenization_spaces` here."""
    pieces = [
        UNKNOWN,
        "▁",
        "▁▁",
        "▁the",
        "▁do",
        "n't",
        "▁n't",
        "'",
        "▁'",
        "▁.",
        ".",
        "▁n",
        "v",
        "'ve",
        "s",
        "▁日",
        "\ufffd",
    ]
    backend = Backend(models.Unigram([(piece, -float(i)) for i, piece in enumerate(pieces)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    _add_tokens(backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=UNKNOWN, clean_up_tokenization_spaces=True)


def unigram_with_bytes() -> PreTrainedTokenizerFast:
    """A unigram vocabulary that spells in byte tokens, decoded like Llama 2."""
    pieces = [*BYTE_TOKENS, UNKNOWN, "▁", "▁a", "b", "é", "▁<0xZZ>", "<0xZZ>"]
    scored = [(piece, -float(i)) for i, piece in enumerate(pieces)]
    backend = Backend(models.Unigram(scored, unk_id=256, byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    _add_tokens(backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=UNKNOWN)


def word_piece() -> PreTrainedTokenizerFast:
    pieces = [UNKNOWN, "a", "##b", "don", "'", "t", ".", "##.", "is", "n't", ""]
    backend = Backend(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token=UNKNOWN))
    backend.decoder = decoders.WordPiece()
    _add_tokens(backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=UNKNOWN, clean_up_tokenization_spaces=True)


def end_of_word() -> PreTrainedTokenizerFast:
    """Blanks follow a token that ends a word, unless it is the last."""
    pieces = ["a</w>", "b", "c</w>", "</w>"]
    backend = Backend(models.BPE({piece: i for i, piece in enumerate(pieces)}, [], end_of_word_suffix="</w>"))
    backend.decoder = decoders.BPEDecoder(suffix="</w>")
    _add_tokens(backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def no_decoder() -> PreTrainedTokenizerFast:
    backend = Backend(models.WordLevel({UNKNOWN: 0, "a": 1, "b": 2, "": 3, "'": 4}, unk_token=UNKNOWN))
    _add_tokens(backend)
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def pattern_in_decoder() -> PreTrainedTokenizerFast:
    """A decoder that promises nothing before the end."""
    return byte_fallback(decoders.Replace(Regex("e+$"), ""))


BUILDERS: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "byte_level": byte_level,
    "byte_fallback": byte_fallback,
    "metaspace": metaspace,
    "unigram_with_bytes": unigram_with_bytes,
    "word_piece": word_piece,
    "end_of_word": end_of_word,
    "no_decoder": no_decoder,
    "pattern_in_decoder": pattern_in_decoder,
}


@pytest.fixture(scope="session")
def tokenizer_by_kind() -> dict[str, Tokenizer]:
    return {kind: Tokenizer(build()) for kind, build in BUILDERS.items()}


@pytest.fixture(scope="session", params=BUILDERS)
def tokenizer(request: pytest.FixtureRequest, tokenizer_by_kind: dict[str, Tokenizer]) -> Tokenizer:
    """One tokenizer of each kind in turn."""
    return tokenizer_by_kind[request.param]


@pytest.fixture
def kind(request: pytest.FixtureRequest, tokenizer_by_kind: dict[str, Tokenizer]) -> Tokenizer:
    """The tokenizer of the kind that a test names."""
    return tokenizer_by_kind[request.param]


@pytest.fixture(scope="session", name="byte_level")
def byte_level_tokenizer(tokenizer_by_kind: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizer_by_kind["byte_level"]


@pytest.fixture(scope="session", name="byte_fallback")
def byte_fallback_tokenizer(tokenizer_by_kind: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizer_by_kind["byte_fallback"]


@pytest.fixture(scope="session", name="metaspace")
def metaspace_tokenizer(tokenizer_by_kind: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizer_by_kind["metaspace"]


@pytest.fixture(scope="session", name="pattern_in_decoder")
def pattern_in_decoder_tokenizer(tokenizer_by_kind: dict[str, Tokenizer]) -> Tokenizer:
    return tokenizer_by_kind["pattern_in_decoder"]
