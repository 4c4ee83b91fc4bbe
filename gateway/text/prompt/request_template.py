"""Compiles and renders a request template, an untrusted program, in another process.

That process imports this module, too, and calls ``answer``.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import jinja2.debug  # noqa: F401 - jinja2 imports it with the first error, when memory may have run out

from gateway.text.bounded_dict import BoundedDict
from gateway.text.prompt.chat_template import ChatTemplate
from gateway.text.prompt.control_tokens import ControlTokens
from gateway.text.prompt.history import TemplateAbilities, TemplateError
from gateway.text.untrusted_work import Helper, HelperFailedError

SECONDS: Final = 5.0
MEMORY_MIB: Final = 512
MOST_CHARACTERS: Final = 2**23

_MOST_FOUND = 8  # sets of variables whose facts are kept
_PARAM = "chat_template"
_FAILURES = {
    "time": f"takes more than {SECONDS:g} seconds",
    "size": f"renders a prompt of more than {MOST_CHARACTERS} characters",
    "memory": f"takes more than {MEMORY_MIB} MiB of memory",
    "ended": "takes too much time or memory",
}
_renderer = Helper(
    "gateway.text.prompt.request_template",
    memory_bytes=MEMORY_MIB * 2**20,
    seconds=SECONDS,
    largest=8 * MOST_CHARACTERS,
)


class RequestTemplate:
    """A template that is compiled and rendered in another process, with limits of time, memory and output.

    Attributes:
        source: the template's text.
        reserved: names that no request may set.
        control_tokens: the tokenizer's control tokens.
    """

    def __init__(self, source: str, models: ChatTemplate) -> None:
        """Prepare; nothing is compiled yet.

        Args:
            source: of the template.
            models: the model's own, for the tokens and names that it shares.
        """
        self.source = source
        self.reserved = models.reserved
        self.control_tokens = models.control_tokens
        self._special_tokens = models.special_tokens
        self._found = BoundedDict[str, tuple[bool, TemplateAbilities]](_MOST_FOUND)

    def render_marked(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> str:
        """Render a conversation; options and result as of ``ChatTemplate.render_marked``.

        Raises:
            TemplateError: the template does not compile, rejects the conversation, fails on it, or exceeds a bound.
        """
        return str(self._asked({"conversation": {"messages": messages, **options}}))

    @property
    def shows_tools(self) -> bool:
        """Whether the template shows definitions of tools.

        Raises:
            TemplateError: it does not compile, or passes a bound.
        """
        return self._facts(True, {})[0]

    def abilities(self, *, tools: bool, variables: Mapping[str, Any] = MappingProxyType({})) -> TemplateAbilities:
        """Find out how the template takes a conversation, as ``ChatTemplate.abilities`` does.

        Raises:
            TemplateError: it does not compile, or passes a bound.
        """
        return self._facts(tools, {**variables})[1]

    def _facts(self, tools: bool, variables: Mapping[str, Any]) -> tuple[bool, TemplateAbilities]:
        key = json.dumps([tools, variables], sort_keys=True)
        found = self._found.get(key)
        if found is None:
            shows_tools, abilities = self._asked({"tools": tools, "variables": variables})
            sets = {name: frozenset(value) for name, value in abilities.items() if isinstance(value, list)}
            found = self._found[key] = shows_tools, TemplateAbilities(**{**abilities, **sets})
        return found

    def _asked(self, wish: Mapping[str, Any]) -> Any:
        question = {
            "source": self.source,
            "special_tokens": self._special_tokens,
            "control_tokens": self.control_tokens.texts,
            "nonce": self.control_tokens.nonce,
            "most": MOST_CHARACTERS,
            **wish,
        }
        try:
            answer = json.loads(_renderer.ask(json.dumps(question).encode()))
        except HelperFailedError as error:
            answer = {"bound": error.reason}
        if "bound" in answer:
            _renderer.close()  # its memory may be in pieces
            raise TemplateError(f"The request's chat template {_FAILURES[answer['bound']]}.", param=_PARAM)
        if "message" in answer:
            if answer["by_author"]:
                raise TemplateError(answer["message"], by_author=True)
            why = f"The request's chat template fails: {answer['detail']}" if answer["detail"] else answer["message"]
            raise TemplateError(why, param=_PARAM)
        return answer["found"]


@dataclasses.dataclass
class _Tokens:
    special_tokens: dict[str, str]
    control_tokens: Sequence[str]
    bos_token: str | None = None  # both are among them where there are any
    eos_token: str | None = None


def answer(question: bytes | bytearray) -> bytes:
    """Answer a question in JSON, in the other process.

    Its keys are ``source``, ``special_tokens``, ``control_tokens`` and ``nonce`` of a template, and either a
    ``conversation`` to render into ``most`` characters, or ``tools`` and ``variables`` to probe the template with.

    Returns:
        JSON with the text or the facts ``found``, the fields of a TemplateError, or the ``bound`` that was passed.
    """
    try:
        return _json(_found(json.loads(question)))
    except TemplateError as error:
        # Both may be the template's own words, of any length and with half surrogate pairs.
        message, detail = (text[:500].encode(errors="replace").decode() for text in (error.message, error.detail))
        return _json({"message": message, "by_author": error.by_author, "detail": detail})
    except MemoryError:
        return _json({"bound": "memory"})


def _found(asked: dict[str, Any]) -> dict[str, Any]:
    # Not kept: constants of a template may be of any size.
    control_tokens = _control_tokens(asked["nonce"], *asked["control_tokens"])
    template = ChatTemplate(asked["source"], _Tokens(asked["special_tokens"], control_tokens.texts), control_tokens)
    if "tools" in asked:
        tools = asked["tools"]
        shown = tools and template.shows_tools
        return {"found": (shown, dataclasses.asdict(template.abilities(tools=tools, variables=asked["variables"])))}
    conversation = asked["conversation"]
    text = template.render_marked(conversation.pop("messages"), **conversation)
    return {"found": text} if len(text) <= asked["most"] else {"bound": "size"}


@functools.lru_cache(maxsize=2)
def _control_tokens(nonce: str, *texts: str) -> ControlTokens:
    return ControlTokens(texts, nonce)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, default=list).encode()
