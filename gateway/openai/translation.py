"""Paths of a request that was translated into a chat request: errors name the client's own parameters."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.bad_request import BadRequestError

_INDEXED = re.compile(r"(messages|tools)\[(\d+)\]")
_STEP = re.compile(r"[.\[]")


@dataclass(frozen=True, slots=True)
class Translation:
    """The origin of each part of a chat request.

    Attributes:
        messages: for each message the path of the part that it was made of, such as ``input[3]``.
        tools: for each tool likewise.
        fields: other paths, the longest beginning that is here is replaced: ``response_format`` by ``text.format``.
        parts: paths within messages and tools that have an origin of their own: ``messages[2].tool_calls[1].function``
            is ``input[5]``, ``tools[0].function.parameters`` is ``tools[0].input_schema``.
    """

    messages: Sequence[str] = ()
    tools: Sequence[str] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)

    def path(self, param: str) -> str:
        """The client's path for one of the chat request; the same where nothing was renamed."""
        for end in sorted((len(param), *(found.start() for found in _STEP.finditer(param))), reverse=True):
            if param[:end] in self.parts:
                return self.parts[param[:end]] + param[end:]
        if found := _INDEXED.match(param):
            origins, place = (self.messages if found[1] == "messages" else self.tools), int(found[2])
            if place < len(origins):
                return origins[place] + param[found.end() :]
        for name in sorted(self.fields, key=len, reverse=True):
            if param == name or param.startswith((f"{name}.", f"{name}[")):
                return self.fields[name] + param[len(name) :]
        return param

    def names(self, names: Mapping[str, str]) -> dict[str, str]:
        """The names by which errors of the engine call this request's parameters; see ``Plan.names``."""
        return {name: self.fields[name] for name in self.fields} | {
            name: self.path(param) for name, param in names.items()
        }

    @contextlib.contextmanager
    def renaming(self) -> Iterator[None]:
        """Let a refusal within name the client's own parameter, in its sentence too."""
        try:
            yield
        except BadRequestError as error:
            if error.param is not None:
                own = self.path(error.param)
                error.message = error.message.replace(f"'{error.param}'", f"'{own}'")
                error.param = own
            raise
