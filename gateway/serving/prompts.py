"""Builds prompts: renders and tokenizes the source of a prompt for a served model."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from gateway.generation import PromptTooLongError, context_exceeded
from gateway.serving.loading import ModelParts
from gateway.serving.long_work import LARGE_PROMPTS, PROMPTS, TEMPLATES, ClientLeftError, LongWork
from gateway.settings import ModelSettings
from gateway.text.bad_request import BadRequestError
from gateway.text.client_json import write_client_json
from gateway.text.families.call_schema import definitions_in_place
from gateway.text.prompt import RequestTemplate, history
from gateway.text.prompt.prompt import Prompt
from gateway.text.prompt.turn_text import TokenBreaker, path_of
from gateway.text.tokens.segments import CacheScope
from gateway.text.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, rendered by the model's chat template.

    Attributes:
        messages: as of ``prompt.history``: role, content as text, and whatever else templates read; ``parts`` of a
            content that has several; arguments of calls as JSON text, reasoning of the assistant under ``reasoning``.
        tools: definitions of tools, for templates that show them.
        documents: documents, for templates that cite them.
        add_generation_prompt: whether the prompt ends with the opening of the assistant's turn.
        continue_final_message: whether the prompt ends inside the last message, which the answer continues; excludes
            ``add_generation_prompt``.
        template: a Jinja template of the request's own; None takes the model's.
        variables: further names for the template; they replace none of the above.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """A text, in which texts of control tokens are control tokens.

    Attributes:
        text: may be empty where the model has a BOS.
        add_special_tokens: whether BOS goes first where the tokenizer has it so; never a second one.
    """

    text: str
    add_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class IdsPrompt:
    """Token ids, to which nothing is added.

    Attributes:
        ids: in the model's vocabulary, at least one.
    """

    ids: Sequence[int]


PromptSource = ChatPrompt | TextPrompt | IdsPrompt


def spoken(source: PromptSource) -> Sequence[Mapping[str, Any]]:
    """The messages of a source, each with ``role`` and ``content``; none for token ids."""
    if isinstance(source, ChatPrompt):
        return source.messages
    return [{"role": "user", "content": source.text}] if isinstance(source, TextPrompt) else []


@dataclass(frozen=True, slots=True)
class Truncation:
    """Cuts a prompt by tokens after the chat template, as vLLM's ``truncate_prompt_tokens`` does.

    Attributes:
        tokens: most tokens that stay; -1 for as many as fit into the context with the answer.
        side: side that is cut off. On the left a BOS that the tokenizer adds to a text stays.
        answer: most tokens of the answer, at least 1.
        answer_name: the request parameter of ``answer``, for error messages.
    """

    tokens: int
    side: Literal["left", "right"] = "left"
    answer: int = 1
    answer_name: str = "max_tokens"


class UnknownTextError(Exception):
    """The prompt has more unknown text than may be tokenized here."""


LONG = 4096
"""Characters or ids; rendering and tokenizing more than this would hold up other requests' tokens."""
_LARGE = 65536  # characters or ids; longer prompts are built one at a time, and shorter ones do not wait for them
_MOST_LOOKED_UP = 262144  # characters of its messages, reasoning and calls among them
_MOST_CHARACTERS = 8  # for each token, in a large prompt; texts have 1 to 6
_FRAME = 16  # characters that a template writes around a message or a call
_LEAST_BOUND = 131072  # so that long documents can be cut by those who count them first


def long_work(source: PromptSource) -> LongWork | None:
    """The queue in which the prompt is built; None for the event loop."""
    if isinstance(source, ChatPrompt) and source.template is not None:
        return TEMPLATES
    size = _size(source)
    return None if size <= LONG else work_of(size)


def may_be_known(source: PromptSource, work: LongWork, parts: ModelParts) -> bool:
    """Tell whether to look up a long prompt in the token cache before it waits for a thread."""
    if work is TEMPLATES or not isinstance(source, ChatPrompt):
        return False
    if work is LARGE_PROMPTS and (_said(source) > _MOST_LOOKED_UP or _nested(source) > _LARGE):
        return False
    return parts.tokenizer.obstacle is None


def work_of(size: int) -> LongWork | None:
    """The queue for a prompt with so many characters or ids; None for the event loop."""
    return None if size <= LONG else PROMPTS if size <= _LARGE else LARGE_PROMPTS


def most_tokens(parts: ModelParts) -> int:
    """The most tokens that are counted of a text: the context, at least 131,072."""
    return max(parts.max_seq_len, _LEAST_BOUND)


def _size(source: PromptSource) -> int:
    """Roughly its characters, or its ids."""
    if isinstance(source, TextPrompt):
        return len(source.text)
    if isinstance(source, IdsPrompt):
        return len(source.ids)
    return _said(source) + _nested(source)


def _said(source: ChatPrompt) -> int:
    """Roughly the characters of its messages; a template writes something for an empty message as well."""
    return sum(
        _FRAME
        + len(message["content"])
        + len(message.get("reasoning", ""))
        + sum(_FRAME + len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))
        for message in source.messages
    )


def _nested(source: ChatPrompt) -> int:
    """Roughly the characters of what stands beside the messages."""
    beside = [each for each in (source.tools, source.documents, source.variables) if each]
    return len(write_client_json(beside)) if beside else 0


def build(
    source: PromptSource,
    parts: ModelParts,
    settings: ModelSettings,
    *,
    frames: bool | None = None,
    limit: int | None = None,
    cancel: threading.Event | None = None,
    recall: CacheScope | None = None,
    unknown: int | None = None,
) -> Prompt:
    """Render and tokenize a prompt into the ids that the engine reads.

    Args:
        source: source of the prompt.
        parts: tokenizer and templates of the model.
        settings: settings of the model.
        frames: whether the server puts special tokens around a text; None where prompts travel as ids.
        limit: most tokens of the prompt; None for the model's context.
        cancel: set when no client waits for the prompt any more.
        recall: cache of ids of the prompt's parts.
        unknown: most characters that may be tokenized; None for all.

    Raises:
        UnknownTextError: more of it is unknown.
        PromptTooLongError: it is far too long.
        LeftError: no client waits.
        BadRequestError: when the model cannot take it.
        TemplateError: when the chat template rejects the messages.
    """
    bound = LengthBound(parts, limit, cancel, recall, unknown)
    bound.check_source(source)
    if isinstance(source, ChatPrompt):
        prompt = _chat(source, parts, settings, bound)
        if prompt.escaped and frames is not None:
            prompt = _chat_as_text(source, parts, settings, bound)
    else:
        prompt = _raw(source, parts, bound, frames=frames)
    if frames is None or isinstance(source, IdsPrompt):
        return prompt
    return parts.prompts.as_read(prompt, frames=frames, how=bound)


def truncated(
    prompt: Prompt, source: PromptSource, truncation: Truncation, parts: ModelParts, *, room: int, frames: bool | None
) -> Prompt:
    """Cut a prompt.

    Args:
        prompt: prompt of ``build``.
        source: source of the prompt.
        truncation: how the prompt is cut.
        parts: tokenizer and templates of the model.
        room: tokens of the context that prompt and answer may share.
        frames: as of ``build``.

    Raises:
        BadRequestError: when more is kept than the context has place for, or the rest cannot travel as text.
    """
    room -= truncation.answer
    if room < 1:
        message = f"The context leaves no tokens for a prompt after {truncation.answer} tokens for the answer."
        raise BadRequestError(message, truncation.answer_name, "context_length_exceeded")
    most = room if truncation.tokens == -1 else truncation.tokens
    if most > room:
        message = f"The context leaves {room} tokens for the prompt after {truncation.answer} tokens for the answer."
        raise BadRequestError(message, "truncate_prompt_tokens", "integer_above_max_value")
    ids = tuple(prompt.ids)
    if len(ids) <= most:
        return prompt
    if truncation.side == "right":
        ids = ids[:most]
    elif isinstance(source, TextPrompt) and source.add_special_tokens and prompt.bos_text:
        ids = ids[:1] + ids[len(ids) - most + 1 :]
    else:
        ids = ids[-most:]
    cut = dataclasses.replace(parts.prompts.ids(ids, frames=frames), changed=prompt.changed)
    if cut.escaped:
        raise BadRequestError(
            "This prompt cannot be truncated at this token because this model receives prompts as text, and no text "
            "has the same token ids. Ask the operator to serve an engine model (path: tokens).",
            "truncate_prompt_tokens",
            "unsupported_value",
        )
    return cut


class LengthBound:
    """Bounds the length of a prompt by cheap checks before all of it is tokenized.

    A prompt that passes takes some hundreds of bytes of memory for each token of ``limit``. It has at most 8 characters
    for each, of which tokenizers of one long word take a hundred bytes each.

    Attributes:
        limit: tokens beyond which nothing more is tokenized, because the prompt is far too long.
        characters: characters that ``check_characters`` accepts in any case.
    """

    def __init__(
        self,
        parts: ModelParts,
        limit: int | None = None,
        cancel: threading.Event | None = None,
        recall: CacheScope | None = None,
        unknown: int | None = None,
    ) -> None:
        """Prepare the check of one prompt.

        Args:
            parts: of the model.
            limit: tokens; None: as the model's context.
            cancel: set when no client waits for the prompt any more.
            recall: what is known of its parts.
            unknown: characters that may be tokenized; None: all.
        """
        self.recall = recall
        self._unknown = unknown
        self._parts = parts
        self._most = limit or parts.max_seq_len
        self.limit = max(self._most + self._most // 8, LONG)
        self.characters = self._most * min(parts.tokenizer.longest_token, _MOST_CHARACTERS)
        self._room = limit or parts.max_seq_len - 1  # an answer needs at least one more
        self._left = cancel
        self._of_context = limit is None

    def check_source(self, source: PromptSource) -> None:
        """Reject a source that cannot fit by its size alone.

        Raises:
            PromptTooLongError: it cannot fit.
        """
        if isinstance(source, IdsPrompt):
            self.check_count(len(source.ids))
        elif isinstance(source, TextPrompt):
            self.check_characters(len(source.text))
        else:
            size = sum(len(message["content"]) for message in source.messages)
            if size > self.characters:
                self.check_characters(size)

    def check_count(self, count: int) -> None:
        """Reject more tokens than allowed.

        Raises:
            PromptTooLongError: it cannot fit.
        """
        if count > self._most:
            self._reject(f"it has {count} tokens", count)

    def check_text(self, text: str) -> None:
        """Reject a text with far more tokens than allowed: over an eighth more, counted in pieces.

        No token is shorter than a byte, so a text with no more bytes than there may be tokens is not counted.

        Raises:
            PromptTooLongError: it cannot fit.
            LeftError: no client waits.
        """
        self.check_characters(len(text))
        if len(text) > LONG and len(text.encode("utf-8", "surrogatepass")) > self._most:
            self.check(self._parts.tokenizer.count_beyond(text, self.limit, self.stopped))

    def check(self, count: int) -> None:
        """Reject a prompt with far more tokens than allowed.

        Raises:
            PromptTooLongError: it cannot fit.
            LeftError: no client waits.
        """
        if self._left is not None and self._left.is_set():
            raise ClientLeftError
        if count > self.limit:
            self._reject(f"it has more than {self.limit} tokens", count)

    def begin(self, size: int) -> None:
        """Count characters that are to be tokenized here.

        Raises:
            UnknownTextError: more characters than may be tokenized here.
        """
        if self._unknown is not None:
            self._unknown -= size
            if self._unknown < 0:
                raise UnknownTextError

    def stopped(self) -> bool:
        """Whether the client has left."""
        return self._left is not None and self._left.is_set()

    def check_characters(self, size: int) -> None:
        """Reject more characters than the allowed tokens can have.

        Raises:
            PromptTooLongError: it cannot fit.
        """
        each = self._parts.tokenizer.longest_token
        if size > _LARGE:
            each = min(each, _MOST_CHARACTERS)
        if size > self._most * each:
            self._reject(f"{size} characters cannot fit into that limit", max(size // each, self._most + 1))

    def _reject(self, why: str, tokens: int) -> NoReturn:
        says = f"A prompt to count must have at most {self._most} tokens, but {why}; shorten it."
        if self._of_context:
            says = context_exceeded(f"prompt is too long: {why}; shorten it.", self._most)
        raise PromptTooLongError(says, tokens, self._room)


def _raw(source: TextPrompt | IdsPrompt, parts: ModelParts, bound: LengthBound, *, frames: bool | None) -> Prompt:
    if isinstance(source, TextPrompt):
        added = source.add_special_tokens
        prompt = parts.prompts.text(source.text, add_special_tokens=added, frames=frames, how=bound)
    else:
        check_ids(source.ids, parts.tokenizer, "prompt[{place}]")
        prompt = parts.prompts.ids(source.ids, frames=frames)
    if not prompt.ids:
        raise BadRequestError(
            "The prompt is empty, and this model has no BOS token to start with.", "prompt", "invalid_value"
        )
    if not prompt.escaped:
        return prompt
    if isinstance(source, TextPrompt):
        raise BadRequestError(
            "BOS cannot be left out because this model receives prompts as text and adds BOS itself. Ask the "
            "operator to set path: tokens.",
            "add_special_tokens",
            "unsupported_value",
        )
    raise BadRequestError(
        "This model receives prompts as text, and no text has the token ids of this prompt. Send the prompt as text, "
        "or ask the operator to serve an engine model (path: tokens).",
        "prompt",
        "unsupported_value",
    )


def check_ids(ids: Sequence[int], tokenizer: Tokenizer, param: str) -> None:
    """Reject ids that are not in the model's vocabulary.

    Args:
        ids: to check.
        tokenizer: of the model.
        param: path in the request; ``{place}`` and ``{id}`` in it become those of the wrong id.

    Raises:
        BadRequestError: naming the first one.
    """
    size = tokenizer.vocab_size
    if ids and (max(ids) >= size or min(ids) < 0):
        place, wrong = next((place, index) for place, index in enumerate(ids) if not 0 <= index < size)
        message = f"The token id {wrong} is not in this model's vocabulary; ids must be from 0 to {size - 1}."
        raise BadRequestError(message, param.format(place=place, id=wrong), "invalid_value")


def _chat(source: ChatPrompt, parts: ModelParts, settings: ModelSettings, bound: LengthBound) -> Prompt:
    template = None if source.template is None else _own_template(source.template, parts, settings)
    used = template or (parts.template(tools=True) if source.tools else parts.prompts.template)
    for name in source.variables:
        if name in used.reserved:
            param = f"chat_template_kwargs.{name}"
            raise BadRequestError(
                f"{name!r} is reserved for the chat template and cannot be set.", param, "invalid_value"
            )
    tools = source.tools if source.tools and used.shows_tools else None
    if template is not None and source.tools and not tools:
        raise BadRequestError("This chat template does not support tools.", "chat_template", "invalid_value")
    changed: list[str] = []
    abilities = used.abilities(tools=tools is not None, variables=source.variables)
    if tools and not abilities.definitions:
        tools = definitions_in_place(tools)
    prompt = parts.prompts.build(
        history(source.messages, abilities, changed),
        tools=tools,
        documents=source.documents,
        add_generation_prompt=source.add_generation_prompt,
        continue_final_message=source.continue_final_message,
        template=used,
        variables=source.variables,
        how=bound,
    )
    return dataclasses.replace(prompt, changed=changed) if changed else prompt


def _chat_as_text(source: ChatPrompt, parts: ModelParts, settings: ModelSettings, bound: LengthBound) -> Prompt:
    """The prompt for a server that reads text: control-token text is broken where the model may have written it.

    Raises:
        BadRequestError: with the path of such text elsewhere.
    """
    control_tokens = parts.prompts.template.control_tokens
    breaker = TokenBreaker(control_tokens)
    messages = breaker.messages(source.messages)
    prompt = _chat(dataclasses.replace(source, messages=messages), parts, settings, bound)
    if not prompt.escaped:
        return dataclasses.replace(prompt, changed=[*prompt.changed, *breaker.changed])
    data = {"messages": messages, "tools": source.tools or (), "documents": source.documents or ()}
    path = path_of({**data, "chat_template_kwargs": source.variables}, control_tokens)
    raise BadRequestError(
        f"The text of a control token in {path!r} cannot be escaped because this model receives prompts as text; the "
        "operator can allow it with escape_special_tokens: false.",
        path,
    )


def _own_template(template: str, parts: ModelParts, settings: ModelSettings) -> RequestTemplate:
    """The template that the request brings, where the operator allows that."""
    if not settings.allow_request_template:
        raise BadRequestError(
            "This model does not accept chat templates in requests; the operator can allow them with "
            "allow_request_template: true.",
            "chat_template",
            "unsupported_parameter",
        )
    return parts.prompts.of_request(template)


def opening(source: PromptSource) -> str | None:
    """Make a digest of a conversation up to its first question; None for other prompts."""
    if not isinstance(source, ChatPrompt):
        return None
    digest = hashlib.blake2b(digest_size=16)
    for message in source.messages:
        digest.update(f"{message['role']}\n{message['content']}\n".encode("utf-8", "surrogatepass"))
        if message["role"] == "user":
            break
    return digest.hexdigest()
