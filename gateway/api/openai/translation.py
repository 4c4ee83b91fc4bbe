"""Translations of another API's request to a chat request: errors and tools keep the client's names."""

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
_NAMED = re.compile(r"'([a-z]+_[a-z_.]+)'")  # a parameter in a message; words alone may be names of tools
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Translation:
    """The origin of each part of a chat request.

    Attributes:
        messages: for each message the path of the part that it was made of, such as ``input[3]``.
        tools: for each tool the path of its origin.
        fields: origins of other paths, by their beginnings: ``response_format`` is ``text.format``.
        parts: paths within messages and tools that have an origin of their own: ``messages[2].tool_calls[1].function``
            is ``input[5]``, ``tools[0].function.parameters`` is ``tools[0].input_schema``.
    """

    messages: Sequence[str] = ()
    tools: Sequence[str] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)

    def path(self, param: str) -> str:
        """Translate a path of the chat request to the client's path; paths without an origin stay."""
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
        """Translate the names by which engine errors call parameters; see ``AnswerPlan.names``."""
        return {name: self.fields[name] for name in self.fields} | {
            name: self.path(param) for name, param in names.items()
        }

    @contextlib.contextmanager
    def renaming(self) -> Iterator[None]:
        """Translate the names of parameters in errors that are raised within."""
        try:
            yield
        except BadRequestError as error:
            if error.param is not None:
                own = self.path(error.param)
                message = _NAMED.sub(lambda named: f"'{self.path(named[1])}'", error.message)
                error.message = message.replace(f"'{error.param}'", f"'{own}'")
                error.param = own
            raise


def placed(error: BadRequestError, path: str) -> BadRequestError:
    """Put the path of a part before the parameter of its error, where the part was validated by itself.

    Args:
        error: names parameters as if the part were all of the request.
        path: of the part.
    """
    own = f"{path}.{error.param}" if error.param else path
    error.message = error.message.replace(f"'{error.param}'", f"'{own}'")
    error.param = own
    return error


def function_name(name: str) -> str:
    """Make the function name of a tool, the same in every turn.

    A name with other characters, or of more than 64, is cut and made unique by a digest.
    """
    if re.fullmatch(r"[a-zA-Z0-9_-]{0,64}", name):
        return name
    return digested_name(re.sub(r"[^a-zA-Z0-9_-]", "_", name), name)


def digested_name(plain: str, name: str) -> str:
    """Cut a name that is too long, and end it with a digest.

    Args:
        plain: the name in characters that a function's name can have.
        name: the text to digest.
    """
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - len(digest) - 1]}_{digest}"


def no_such_tool(name: str, param: str) -> BadRequestError:
    """Make the error for a choice of a tool that the request does not have."""
    shown = printable(name)
    return BadRequestError(f"The request has no tool named {shown!r}.", param, "invalid_value")


def not_run(kind: str) -> BadRequestError:
    """Make the error for a choice of a tool that clients cannot run."""
    shown = printable(kind)
    message = f"'tool_choice' requires a tool of the type {shown!r}, which this gateway does not support."
    return BadRequestError(message, "tool_choice", "unsupported_parameter")


@dataclass(slots=True)
class TranslatedRequest:
    """Another API's request as a chat request; see ``gateway.api.openai.endpoint.ParsedRequest``.

    Attributes:
        chat: the chat request, without ignored parameters.
        translation: translates paths in errors.
        left_out: the client's names of parts that the request is served without.
    """

    chat: ChatCompletionRequest
    translation: Translation
    left_out: tuple[str, ...]

    @property
    def model(self) -> str:
        """The client's name of the model, after ``check_request`` the name of the served model."""
        return self.chat.model

    @model.setter
    def model(self, name: str) -> None:
        self.chat.model = name

    @property
    def stream(self) -> bool:
        """Whether the request asks for a stream."""
        return self.chat.stream

    def annotations(self) -> dict[str, Any]:
        """The request's annotations for the access log."""
        return self.chat.annotations()

    def ignored(self, of_chat: IgnoredParameters, more: Iterable[str] = ()) -> IgnoredParameters:
        """The parameters that the request is served without, by the client's names.

        Args:
            of_chat: parameters that the chat request is served without.
            more: the client's names of other ignored parameters.
        """
        left_out, path = (*self.left_out, *more), self.translation.path
        return IgnoredParameters(
            tuple(dict.fromkeys([*left_out, *map(path, of_chat.named)])),
            tuple(dict.fromkeys([*left_out, *map(path, of_chat.counted)])),
            of_chat.dropped,
        )


def translated_plan(request: TranslatedRequest, model: GeneratorModel) -> ChatPlan:
    """Plan the answer as ``chat_plan`` does, with the client's names of parameters."""
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
