"""Chat requests that stand for those of another API: plan of the answer, errors and tools by the client's own names."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.api.openai.chat.protocol import ChatCompletionRequest
from gateway.api.openai.chat.serving import ChatPlan, chat_plan
from gateway.api.openai.parameters.check import IgnoredParameters
from gateway.serving.generator_model import GeneratorModel
from gateway.text.bad_request import BadRequestError, printable

_INDEXED = re.compile(r"(messages|tools)\[(\d+)\]")
_STEP = re.compile(r"[.\[]")
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Translation:
    """The origin of each part of a chat request.

    Attributes:
        messages: for each message the path of the part that it was made of, such as ``input[3]``.
        tools: for each tool the path of its origin.
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
        """Make errors raised within name the client's own parameter, also in their messages."""
        try:
            yield
        except BadRequestError as error:
            if error.param is not None:
                own = self.path(error.param)
                error.message = error.message.replace(f"'{error.param}'", f"'{own}'")
                error.param = own
            raise


def placed(error: BadRequestError, path: str) -> BadRequestError:
    """The error of a part of a request that was validated by itself, with the part's own path before its parameter.

    Args:
        error: names parameters as if the part were all of the request.
        path: of the part.
    """
    own = f"{path}.{error.param}" if error.param else path
    error.message = error.message.replace(f"'{error.param}'", f"'{own}'")
    error.param = own
    return error


def function_name(name: str) -> str:
    """Make the name of a function under which the model sees a tool, the same in every turn.

    A name that a function cannot have, because it is too long or has other characters, is cut and made unique by a
    digest.
    """
    if re.fullmatch(r"[a-zA-Z0-9_-]{0,64}", name):
        return name
    return digested_name(re.sub(r"[^a-zA-Z0-9_-]", "_", name), name)


def digested_name(plain: str, name: str) -> str:
    """A name that is cut where it is too long, and ends in a digest.

    Args:
        plain: of characters that a function's name can have.
        name: what the digest is of.
    """
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - len(digest) - 1]}_{digest}"


def no_such_tool(name: str, param: str) -> BadRequestError:
    """Make the error for a choice that demands a tool which is not given."""
    shown = printable(name)
    return BadRequestError(f"The request has no tool named {shown!r}.", param, "invalid_value")


def not_run(kind: str) -> BadRequestError:
    """Make the error for a choice that demands a tool which no client runs."""
    shown = printable(kind)
    message = f"'tool_choice' requires a tool of the type {shown!r}, which this gateway does not support."
    return BadRequestError(message, "tool_choice", "unsupported_parameter")


@dataclass(slots=True)
class TranslatedRequest:
    """A chat request that stands for one of another API; see ``gateway.api.openai.endpoint.ParsedRequest``.

    Attributes:
        chat: as the policies of the model let it pass.
        translation: of paths in errors.
        left_out: what the request is served without, as it is named to the client.
    """

    chat: ChatCompletionRequest
    translation: Translation
    left_out: tuple[str, ...]

    @property
    def model(self) -> str:
        """The name under which the client asks for the model, then that of the served model."""
        return self.chat.model

    @model.setter
    def model(self, name: str) -> None:
        self.chat.model = name

    @property
    def stream(self) -> bool:
        """Whether the answer is wanted as a stream."""
        return self.chat.stream

    def annotations(self) -> dict[str, Any]:
        """What the request says of itself; for the access log."""
        return self.chat.annotations()

    def ignored(self, of_chat: IgnoredParameters, more: Iterable[str] = ()) -> IgnoredParameters:
        """All that the request is served without, in the client's own names.

        Args:
            of_chat: what its chat request is served without.
            more: what else was left out, by the client's names.
        """
        left_out, path = (*self.left_out, *more), self.translation.path
        return IgnoredParameters(
            tuple(dict.fromkeys([*left_out, *map(path, of_chat.named)])),
            tuple(dict.fromkeys([*left_out, *map(path, of_chat.counted)])),
            of_chat.dropped,
        )


def translated_plan(request: TranslatedRequest, model: GeneratorModel) -> ChatPlan:
    """Decide how the answer is made and checked, in the client's own names; see ``chat_plan``."""
    translation = request.translation
    with translation.renaming():
        plan = chat_plan(request.chat, model)
    return dataclasses.replace(
        plan,
        names=lambda: translation.names(plan.names()),
        structure=dataclasses.replace(plan.structure, field=translation.path(plan.structure.field)),
        warnings=[translation.path(path) for path in plan.warnings],
        path=translation.path,
    )
