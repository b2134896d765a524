"""`generate` writes what `LLM` answers, as it comes and with no character torn."""

import io
import sys

import pytest

from refinfer import LLM, SamplingParams
from refinfer.cli import generate as generate_module
from refinfer.cli.main import main
from refinfer.engine import CompletionOutput, RequestOutput

PROMPT = "the thing"


def run(*words):
    return main(["generate", *map(str, words)])


def text_of(outputs):
    """The answer to the only prompt."""
    return outputs[0].outputs[0].text


@pytest.fixture
def stdin(monkeypatch):
    def replace(contents):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(contents)))

    return replace


@pytest.fixture
def written(monkeypatch):
    """Each piece that is written, as it is written."""
    pieces: list[str] = []
    monkeypatch.setattr(generate_module, "write", pieces.append)
    return pieces


def outputs_of(*texts):
    """The outputs of a request whose text grows like this."""
    for number, text in enumerate(texts, start=1):
        reason = "length" if number == len(texts) else None
        completion = CompletionOutput(0, text, list(range(number)), None, None, reason, None)
        yield RequestOutput("0", "", [1], None, [completion], finished=reason is not None, num_cached_tokens=0)


@pytest.mark.parametrize("cache", ["none", "static", "continuous"])
def test_generate_writes_the_text_of_llm(checkpoint, capsys, cache):
    expected = text_of(LLM(checkpoint).generate(PROMPT, SamplingParams(max_tokens=24)))
    assert run("--model", checkpoint, "--cache", cache, "--max-tokens", 24, PROMPT) == 0
    assert capsys.readouterr() == (expected + "\n", "")


def test_generate_writes_the_ids_of_llm(checkpoint_without_tokenizer, capsys):
    output = LLM(checkpoint_without_tokenizer).generate([3, 1, 4], SamplingParams(max_tokens=9))[0].outputs[0]
    assert run("--model", checkpoint_without_tokenizer, "--ids", "--max-tokens", 9, "3, 1 4") == 0
    assert capsys.readouterr().out == " ".join(map(str, output.token_ids)) + "\n"


def test_generate_chats_through_the_template(checkpoint, capsys):
    messages = [{"role": "user", "content": PROMPT}]
    expected = text_of(LLM(checkpoint).chat(messages, SamplingParams(max_tokens=24)))
    assert run("--model", checkpoint, "--chat", "--max-tokens", 24, PROMPT) == 0
    assert capsys.readouterr().out == expected + "\n"


@pytest.mark.parametrize("contents", [b"the thing", b"the thing\n"])
def test_generate_reads_standard_input(checkpoint, capsys, stdin, contents):
    run("--model", checkpoint, "--max-tokens", 8, PROMPT)
    expected = capsys.readouterr().out
    stdin(contents)
    assert run("--model", checkpoint, "--max-tokens", 8, "-") == 0
    assert capsys.readouterr().out == expected


def test_generate_takes_the_dtype(checkpoint, monkeypatch):
    seen = {}

    class Stop(Exception):
        """Ends the command where the model would be loaded."""

    def load(_model, **options):
        seen.update(options)
        raise Stop

    monkeypatch.setattr(generate_module, "LLM", load)
    with pytest.raises(Stop):
        run("--model", checkpoint, "--dtype", "bfloat16", "x")
    assert seen == {"cache": "continuous", "dtype": "bfloat16"}


def test_generate_writes_text_as_it_comes(written):
    generate_module._write_answer(outputs_of("a", "a", "a🙂", "a🙂 é"), as_ids=False)
    assert written == ["a", "", "🙂", " é", "\n"]


def test_generate_writes_ids_as_they_come(written):
    generate_module._write_answer(outputs_of(None, None, None), as_ids=True)
    assert written == ["0", " 1", " 2", "\n"]


def test_generate_ends_its_line_when_it_is_interrupted(written):
    def interrupted():
        yield from outputs_of("a", "ab")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate_module._write_answer(interrupted(), as_ids=False)
    assert written == ["a", "b", "\n"]


@pytest.mark.usefixtures("written")
def test_generate_sums_up_on_a_terminal_only(monkeypatch, capsys):
    generate_module._write_answer(outputs_of("a", "ab", "abc"), as_ids=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    generate_module._write_answer(outputs_of("a", "ab", "abc"), as_ids=False)
    err = capsys.readouterr().err
    assert err.startswith("[3 tokens, the first after 0.00 s, then ")
    assert err.endswith(" tokens/s; ended by length]\n")


def test_generate_shows_that_it_loads_on_a_terminal_only(monkeypatch, capsys):
    with generate_module._status("loading"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # what rich takes for a terminal
    with generate_module._status("loading"):
        pass
    assert "loading" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--ids", "1 two"], "the prompt '1 two' is not token ids; give whole numbers with blanks or commas between"),
        (["--ids", "1 -2"], "the prompt '1 -2' is not token ids"),
        (["--ids", "1 99999"], "prompt 0 has token id 99999; the vocabulary has 0 to 319"),
        (["--ids", ""], "prompt 0 has no token; give at least one"),
        (["--max-tokens", "0", "x"], "max_tokens is 0; it must be a whole number of at least 1, or None"),
        (["x" * 1000], "prompt 0 has 1001 tokens; max_model_len 256 leaves room for 255"),
    ],
)
def test_generate_refuses_a_prompt_in_one_line(checkpoint, capsys, words, line):
    assert run("--model", checkpoint, *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"refinfer: {line}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("words", [["--chat", "x"], ["x"]])
def test_generate_refuses_text_without_a_tokenizer(checkpoint_without_tokenizer, capsys, words):
    assert run("--model", checkpoint_without_tokenizer, *words) == 2
    assert "this checkpoint has no tokenizer, so" in capsys.readouterr().err


def test_generate_refuses_standard_input_that_is_no_text(checkpoint, capsys, stdin):
    stdin(b"ab\xff")
    assert run("--model", checkpoint, "-") == 2
    assert capsys.readouterr().err == "refinfer: standard input is not UTF-8 at byte 2; convert it first\n"


def test_generate_refuses_a_model_that_is_none(capsys):
    assert run("--model", "nothing", "x") == 2
    assert capsys.readouterr().err.startswith("refinfer: model 'nothing' is neither a folder here")


@pytest.mark.parametrize("words", [["--chat", "--ids", "1"], ["--cache", "tiled", "x"], ["--dtype", "int8", "x"], []])
def test_generate_refuses_options_that_do_not_go_together(words):
    with pytest.raises(SystemExit) as caught:
        run("--model", "x", *words)
    assert caught.value.code == 2
