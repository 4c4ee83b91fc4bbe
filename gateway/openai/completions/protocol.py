"""The request of ``POST /v1/completions``: its schema, and from bytes to a validated request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from pydantic import Field, ValidationError

from gateway.config.model_settings import SamplingDefaults
from gateway.openai.body import Body, parse_object
from gateway.openai.completions.prompts import PromptField, sources
from gateway.openai.generation import (
    MOST_TOKENS,
    Conflict,
    GenerationFields,
    refuse_conflicts,
    shared_conflicts,
    without_nulls,
)
from gateway.openai.validation import error_of
from gateway.serving.ask import Options, PromptSource

_MOST_SEQUENCES = 2048  # prompts times candidates: each is a request to the engine


class CompletionRequest(GenerationFields):
    """A request to continue texts. Ranges and defaults are OpenAI's; what it does not have are extensions."""

    prompt: PromptField = Field(default="", description="Absent: the beginning of a text, where the model has a BOS.")
    max_tokens: int | None = Field(
        default=None, ge=0, le=MOST_TOKENS, description="Absent: the rest of the context. 0 needs echo."
    )
    logprobs: int | None = Field(default=None, ge=0, le=20, description="Alternatives per token.")
    echo: bool = Field(default=False, description="Whether the prompt stands before the answer.")
    detokenize: bool = Field(default=True, description="Extension: false gives token_ids and an empty text.")
    add_special_tokens: bool = Field(default=True, description="Extension: whether BOS goes before a text.")

    @property
    def shows_end(self) -> bool:
        """Whether an end id has a row in the log-prob lists, as it has where one token is asked for.

        Evaluation harnesses ask for one token and cut its row off again, whatever it is.
        """
        return self.logprobs is not None and self.max_tokens == 1

    def sources(self) -> list[PromptSource]:
        """Its prompts in neutral terms."""
        return sources(self.prompt, add_special_tokens=self.add_special_tokens)

    def options(self, defaults: SamplingDefaults) -> Options:
        """Everything but the prompts in neutral terms.

        Args:
            defaults: of the model, for what the request leaves out.
        """
        base = self.base_options(defaults)
        prompt_logprobs = self.prompt_logprobs
        if self.echo and self.logprobs is not None:
            prompt_logprobs = max(self.logprobs, prompt_logprobs or 0)
        return dataclasses.replace(
            base,
            n=self.candidates,
            max_tokens=1 if self.max_tokens == 0 else base.max_tokens,  # the engine's least; then it is not shown
            logprobs=self.logprobs is not None or self.candidates > self.n,
            top_logprobs=self.logprobs or 0,
            ignore_eos=base.ignore_eos or self.shows_end,
            prompt_logprobs=prompt_logprobs,
            token_ids=base.token_ids or not self.detokenize,
        )

    def names(self, guided_by: str | None) -> dict[str, str]:
        """See the base."""
        names = super().names(guided_by)
        if self.logprobs is not None:
            names |= {"logprobs": "logprobs", "top_logprobs": "logprobs"}
            if self.echo and self.prompt_logprobs is None:
                names["prompt_logprobs"] = "echo"
        return names


def parse_completion_request(body: Body) -> CompletionRequest:
    """Parse and validate a request body.

    Raises:
        OpenAIError: 400, naming the parameter at fault.
    """
    try:
        request = CompletionRequest.model_validate(without_nulls(parse_object(body)))
    except ValidationError as error:
        raise error_of(error) from None
    refuse_conflicts(_conflicts(request))
    return request


def _conflicts(request: CompletionRequest) -> Iterator[Conflict]:
    """What no single field shows."""
    if request.max_tokens == 0 and not request.echo:
        message = "'max_tokens' may be 0 only when 'echo' is true: there would be nothing to return."
        yield message, "max_tokens", "integer_below_min_value"
    yield from shared_conflicts(request)
    if len(request.sources()) * request.candidates > _MOST_SEQUENCES:
        message = f"At most {_MOST_SEQUENCES} answers can be asked for at once, over all prompts; send fewer prompts."
        yield message, "prompt", "array_above_max_length"
