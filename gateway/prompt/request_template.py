"""The chat template of one request: a stranger's program, compiled and rendered in a process of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway.helper import Helper, HelperFailedError
from gateway.prompt.abilities import TemplateAbilities
from gateway.prompt.errors import TemplateError

SECONDS: Final = 5.0
MEMORY_MIB: Final = 512
MOST_CHARACTERS: Final = 2**23

_PARAM = "chat_template"
_FAILURES = {
    "time": f"takes more than {SECONDS:g} seconds",
    "size": f"makes a prompt of more than {MOST_CHARACTERS} characters",
    "memory": f"takes more than {MEMORY_MIB} MiB of memory",
    "ended": "takes too much time or memory",
}
_renderer = Helper(
    "gateway.prompt.rendering", memory_bytes=MEMORY_MIB * 2**20, seconds=SECONDS, largest=8 * MOST_CHARACTERS
)


class RequestTemplate:
    """A template that is compiled where it is rendered, with bounds on its time, its memory and what it makes.

    Attributes:
        source: the template's text.
        reserved: names that no request may set.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str], reserved: frozenset[str]) -> None:
        """Prepare; nothing is compiled yet.

        Args:
            source: of the template.
            special_tokens: names and texts of the tokenizer's.
            reserved: names that no request may set.
        """
        self.source = source
        self.reserved = reserved
        self._special_tokens = special_tokens
        self._found: dict[bool, tuple[bool, TemplateAbilities]] = {}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Render a conversation; arguments as of ``ChatTemplate.render``.

        Raises:
            TemplateError: it does not compile, refuses the conversation, fails on it, or passes a bound.
        """
        conversation = {
            "messages": messages,
            "tools": tools,
            "documents": documents,
            "add_generation_prompt": add_generation_prompt,
            "variables": variables,
        }
        return str(self._asked({"conversation": conversation}))

    @property
    def shows_tools(self) -> bool:
        """Whether it shows definitions of tools.

        Raises:
            TemplateError: it does not compile, or passes a bound.
        """
        return self._facts(tools=True)[0]

    def abilities(self, *, tools: bool) -> TemplateAbilities:
        """What it shows of a conversation; as ``ChatTemplate.abilities``.

        Raises:
            TemplateError: it does not compile, or passes a bound.
        """
        return self._facts(tools=tools)[1]

    def _facts(self, *, tools: bool) -> tuple[bool, TemplateAbilities]:
        found = self._found.get(tools)
        if found is None:
            shows_tools, abilities = self._asked({"tools": tools})
            sets = {name: frozenset(value) for name, value in abilities.items() if isinstance(value, list)}
            found = self._found[tools] = shows_tools, TemplateAbilities(**{**abilities, **sets})
        return found

    def _asked(self, what: Mapping[str, Any]) -> Any:
        question = {"source": self.source, "special_tokens": self._special_tokens, "most": MOST_CHARACTERS, **what}
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
