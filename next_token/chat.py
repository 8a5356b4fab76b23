"""How does a conversation become one text, and who may end a message in it?

    <|im_start|>ROLE, a newline, what was said, <|im_end|>, a newline       for each message
    <|im_start|>assistant, a newline                                        and the model goes on

This is ChatML. A file brings its form as a template, a small program in the language Jinja. A
program of a stranger is not run here: the template is compared with the one that is known, and
what is written is written by `ChatFormat`. Marks are special tokens; a message that spells one
holds letters, so that whoever writes a message cannot end it, nor speak as another.

Source: the template of SmolLM2-135M-Instruct (Ben Allal et al. 2025), in its own file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from src.today.gguf_models import RealModel
from src.tokens.bytes import Tokenizer

BEGIN, STOP = "<|im_start|>", "<|im_end|>"
_BEFORE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\n"
)
_AFTER = (
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)


class Message(NamedTuple):
    """What was said, and by whom: "user", "assistant", or "system", who says what the model is."""

    role: str
    said: str


@dataclass(frozen=True)
class ChatFormat:
    """ChatML, with what stands before a conversation that begins without a system's message.

    >>> ChatFormat("Be brief.").text([Message("user", "Hi")], answer=False)
    '<|im_start|>system\\nBe brief.<|im_end|>\\n<|im_start|>user\\nHi<|im_end|>\\n'

    Attributes:
        system: what the system says unless the first message is its own.
    """

    system: str

    def text(self, messages: Sequence[Message], *, answer: bool = True) -> str:
        """The conversation as a text, as the template writes it.

        Args:
            messages: from the first on.
            answer: whether the model's answer is to follow.
        """
        parts = self._parts(messages, answer)
        return "".join(f"{BEGIN}{said}{STOP * ended}{after}" for said, ended, after in parts)

    def ids(
        self, messages: Sequence[Message], tokenizer: Tokenizer, *, answer: bool = True
    ) -> list[int]:
        """The conversation as ids; in what was said no special token is found.

        Args:
            messages: from the first on.
            tokenizer: of the model.
            answer: whether the model's answer is to follow.
        """
        found: list[int] = []
        for said, ended, after in self._parts(messages, answer):
            found += [tokenizer.specials[BEGIN], *tokenizer.encode(said)]
            found += [tokenizer.specials[STOP], *tokenizer.encode(after)] if ended else []
        return found

    def _parts(self, messages: Sequence[Message], answer: bool) -> list[tuple[str, bool, str]]:
        """(what stands between the marks, whether it is ended, what stands after it)."""
        if not messages or messages[0].role != "system":
            messages = [Message("system", self.system), *messages]
        parts = [(f"{role}\n{said}", True, "\n") for role, said in messages]
        return [*parts, ("assistant\n", False, "")] if answer else parts


def chat_format_of(real: RealModel) -> ChatFormat | None:
    """The form that a model asks for; None if it names none, as one that is not for talking.

    Raises:
        ValueError: it asks for another than ChatML as it is known, or has no tokens for its marks.
    """
    if not (template := real.chat_template):
        return None
    system = template.removeprefix(_BEFORE).removesuffix(_AFTER)
    if template != _BEFORE + system + _AFTER or set(system) & set("'\\"):
        got = f"got {template[:60]!r}: a template is a program, and is not run"
        raise ValueError(f"expected a chat template that is ChatML, {got}")
    if absent := {BEGIN, STOP} - real.tokenizer.specials.keys():
        raise ValueError(f"expected special tokens {sorted(absent)}, which the template has")
    return ChatFormat(system)
