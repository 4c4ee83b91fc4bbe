"""The requests of ``/tokenize`` and ``/detokenize``, with the fields that vLLM gave these endpoints."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from gateway.api.openai.chat.messages import Messages, check_continuation, check_history, conversation
from gateway.api.openai.validation import RequestPart, validated
from gateway.serving.prompts import ChatPrompt, TextPrompt
from gateway.text.bad_request import BadRequestError

_LARGEST_ID = 2**31 - 1
_ONE_OF = "Send either 'prompt' or 'messages'."


class _Request(RequestPart):
    model: str | None = Field(default=None, description="Id of a served model; optional if only one model is served.")

    def ignored(self) -> list[str]:
        """List the unknown fields, which the request is served without."""
        return list(self.model_extra or {})


class TokenizeRequest(_Request):
    """Text or a conversation, to be turned into token ids as a completion or a chat would be."""

    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = Field(
        default=None,
        description=(
            "Whether BOS is added if the text does not start with BOS. The default is true for text, false for chat."
        ),
    )
    return_token_strs: bool = Field(
        default=False, description="Whether to return the token strings of the vocabulary, too."
    )
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template: str | None = Field(default=None, max_length=65536)
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    tools: list[dict[str, Any]] | None = None

    def source(self) -> ChatPrompt | TextPrompt:
        """Return the source of the prompt."""
        if self.messages is None:
            return TextPrompt(self.prompt or "", add_special_tokens=self.add_special_tokens is not False)
        return ChatPrompt(
            conversation(self.messages),
            tools=self.tools,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
            template=self.chat_template,
            variables=self.chat_template_kwargs,
        )


class DetokenizeRequest(_Request):
    """Token ids to be turned into text."""

    tokens: Annotated[list[Annotated[int, Field(ge=0, le=_LARGEST_ID)]], Field(fail_fast=True)]


def parse_tokenize_request(fields: dict[str, Any]) -> TokenizeRequest:
    """Parse and validate a request body of ``/tokenize``.

    Raises:
        BadRequestError: naming the field at fault.
    """
    data = {key: value for key, value in fields.items() if value is not None}
    if ("prompt" in data) == ("messages" in data):
        raise BadRequestError(_ONE_OF, param="prompt", code="invalid_value")
    if data.get("continue_final_message") and "add_generation_prompt" not in data:
        data["add_generation_prompt"] = False
    request = validated(TokenizeRequest, data)
    if request.continue_final_message and request.add_generation_prompt:
        message = "'continue_final_message' and 'add_generation_prompt' cannot be used together."
        raise BadRequestError(message, param="continue_final_message", code="invalid_value")
    check_history(request.messages or ())
    if request.messages and request.continue_final_message:
        check_continuation(request.messages[-1])
    return request


def parse_detokenize_request(fields: dict[str, Any]) -> DetokenizeRequest:
    """Parse and validate a request body of ``/detokenize``.

    Raises:
        BadRequestError: naming the field at fault.
    """
    data = {key: value for key, value in fields.items() if value is not None}
    return validated(DetokenizeRequest, data)
