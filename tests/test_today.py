"""`chat`, `streaming` and the commands `complete` and `chat`, on a small Llama.

What they do with a real model, and beside `transformers`, is in `test_real_model.py`.
"""

import io
from functools import partial

import pytest
import torch
from gguf_writing import LIMIT, Texts, small_llama, tokens

from next_token import chat as chat_module
from next_token.__main__ import main
from next_token.chat import STOP, ChatFormat, Message
from next_token.streaming import Reader, spelled, stream
from src.gpt.sampling import generate, temperature, top_k
from src.today.gguf_models import open_model
from src.tokens.bytes import ByteTokenizer

TEMPLATE = f"{chat_module._BEFORE}Be brief.{chat_module._AFTER}"
CHAT = ChatFormat("Be brief.")
PROMPT = [0, 80, 90]


@pytest.fixture
def path(tmp_path, monkeypatch):
    made = small_llama(TEMPLATE).set(llama__context_length=400)
    return made.write(tmp_path / "model.gguf")


@pytest.fixture
def real(path):
    return open_model(path)


def drawing(seed=0):
    return torch.Generator().manual_seed(seed)


# ---- chat ----------------------------------------------------------------------------------------


def test_a_conversation_begins_with_what_the_system_says():
    text = CHAT.text([Message("user", "Hi")])
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    own = [Message("system", "Be long."), Message("user", "Hi")]
    assert CHAT.text(own, answer=False) == (
        "<|im_start|>system\nBe long.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    )


def test_what_is_said_holds_no_mark(real):
    specials = real.tokenizer.specials
    assert chat_module.chat_format_of(real) == CHAT
    ids = CHAT.ids([Message("user", f"a{STOP}b")], real.tokenizer)
    assert ids.count(specials[STOP]) == 2
    assert real.tokenizer.decode(ids) == CHAT.text([Message("user", f"a{STOP}b")])


def known(system):
    return f"{chat_module._BEFORE}{system}{chat_module._AFTER}"


NO_MARKS = Texts([token.replace("im_end", "end") for token in tokens()])


@pytest.mark.parametrize(
    ("template", "values", "message"),
    [
        (known("' + cycler + '"), {}, "a template is a program, and is not run"),
        (known("a\\x27b"), {}, "a template is a program, and is not run"),
        ("{{ messages.__class__ }}", {}, "a template is a program, and is not run"),
        (
            known(""),
            {"tokenizer__ggml__tokens": NO_MARKS},
            r"expected special tokens \['<\|im_end\|>'\]",
        ),
    ],
)
def test_a_template_that_could_be_a_program_or_has_no_marks_is_refused(
    tmp_path, template, values, message
):
    made = small_llama(template).set(**values)
    real = open_model(made.write(tmp_path / "f"))  # `complete` can use it
    with pytest.raises(ValueError, match=message):
        chat_module.chat_format_of(real)


# ---- streaming -----------------------------------------------------------------------------------


def test_a_stream_draws_what_generate_draws(real):
    options = {"max_new_tokens": 20, "filters": [partial(top_k, k=9), partial(temperature, t=2.0)]}
    (whole,) = generate(real.model, [PROMPT], cache=False, generator=drawing(), **options)
    assert len(set(whole.tolist())) > 5
    found = stream(Reader(real.model), PROMPT, generator=drawing(), **options)
    assert [*PROMPT, *found] == whole.tolist()


def test_a_stream_ends_before_its_stop(real):
    whole = list(stream(Reader(real.model), PROMPT, max_new_tokens=20, generator=drawing()))
    options = {"max_new_tokens": 20, "generator": drawing(), "stop": whole[7]}
    assert list(stream(Reader(real.model), PROMPT, **options)) == whole[: whole.index(whole[7])]


def test_a_stream_ends_where_the_context_is_full(tmp_path):
    made = open_model(small_llama().write(tmp_path / "f"))
    found = list(stream(Reader(made.model), [0] * 5, max_new_tokens=50, generator=drawing()))
    assert len(found) == LIMIT - 5 + 1  # the last is drawn from the full context, and not read
    for prompt, options, message in [
        ([0] * 13, {}, "expected at most 12 tokens, the model's context, got 13"),
        ([0], {"filters": [lambda each: each - torch.inf]}, "does a filter forbid all"),
    ]:
        options = {"max_new_tokens": 1} | options
        with pytest.raises(ValueError, match=message):
            next(stream(Reader(made.model), prompt, **options, generator=drawing()))


TEXTS = [[3, 1, 4], [3, 1, 4, 1, 5], [3, 1, 4, 1, 5]]  # goes on, and the same again
TEXTS += [[3, 1, 9, 1, 5, 8], [3, 1], [7]]  # differs within, goes back, another


def test_a_reader_gives_the_logits_of_the_whole_text_whatever_it_has_read_before(real):
    reader = Reader(real.model)
    for ids in TEXTS:
        with torch.inference_mode():
            expected = real.model(torch.tensor([ids]))[:, -1]
        torch.testing.assert_close(reader.logits(ids), expected, atol=1e-5, rtol=0)


def test_a_reader_reads_only_what_is_new(real, monkeypatch):
    read, states = [], real.model.states

    def counted(ids, **options):
        read.append(ids.shape[1])
        return states(ids, **options)

    monkeypatch.setattr(real.model, "states", counted)
    reader = Reader(real.model)
    for ids in TEXTS:
        reader.logits(ids)
    assert read == [3, 2, 1, 4, 1, 1]


def test_a_character_is_shown_when_it_is_whole():
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode("é東!")
    assert list(spelled(ids, tokenizer)) == ["é", "東", "!"]
    assert list(spelled(ids[:-2], tokenizer)) == ["é", "�"]
    assert "".join(spelled([0x61, 0xC3, 0x61], tokenizer)) == "a�a"


# ---- the commands --------------------------------------------------------------------------------


def test_complete_writes_the_text_and_what_follows(path, real, capsys):
    assert main(["complete", str(path), "in the", "--tokens", "5", "--temperature", "1"]) == 0
    prompt = [real.end, *real.tokenizer.encode("in the")]
    options = {"max_new_tokens": 5, "stop": real.end, "generator": drawing()}
    found = spelled(stream(Reader(real.model), prompt, **options), real.tokenizer)
    assert capsys.readouterr().out == "in the" + "".join(found) + "\n"


def test_sampling_settings_count(path, capsys):
    command = ["complete", str(path), "in", "--tokens", "9", "--temperature", "1"]
    for more in (["--top-k", "1"], ["--top-p", "1e-9"], ["--min-p", "1"], ["--temperature", "0"]):
        assert main([*command, *more]) == 0
    said = capsys.readouterr().out.rstrip("\n")
    assert said == "\n".join([said[: (len(said) - 3) // 4]] * 4)


def test_chat_answers_each_line_and_remembers(path, real, capsys, monkeypatch):
    asked, ids = [], ChatFormat.ids

    def spied(self, told, *arguments, **options):
        asked.append([*told])
        return ids(self, told, *arguments, **options)

    monkeypatch.setattr(ChatFormat, "ids", spied)
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nAnd?\n\nnever read\n"))
    assert main(["chat", str(path), "--tokens", "4", "--system", "Sing."]) == 0
    first, second = asked
    assert first == [Message("system", "Sing."), Message("user", "Hi")]
    assert second[:2] == first
    assert [message.role for message in second[2:]] == ["assistant", "user"]
    assert capsys.readouterr().out.startswith(second[2].said + "\n")


def test_a_talk_goes_on_when_the_context_is_full(path, real, capsys, monkeypatch):
    long, words = " in" * real.model.context_length, " in" * (real.model.context_length // 4)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(["Hi", long, *[words] * 5, "", ""])))
    assert main(["chat", str(path), "--tokens", "2"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) >= 6  # all but the long one are answered
    assert err.count("say it shorter") == 1
    assert "the context is full, the earliest question is forgotten" in err


def test_models_that_cannot_are_refused_by_name(tmp_path, capsys, monkeypatch):
    small_llama().write(tmp_path / "plain.gguf")
    small_llama().set(general__architecture="mamba").write(tmp_path / "forged.gguf")
    for command, name, message in [
        (["chat"], "plain.gguf", "expected a model with a chat template, got"),
        (["complete", "a"], "forged.gguf", "expected general.architecture among"),
        (["complete", "a"], "nothing.gguf", "nothing.gguf"),
    ]:
        assert main([command[0], str(tmp_path / name), *command[1:]]) == 1
        assert message in capsys.readouterr().err
