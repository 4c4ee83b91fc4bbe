"""Fields of a request that contradict each other, at every endpoint that generates."""

from __future__ import annotations

from gateway.bad_request import BadRequestError
from gateway.openai.formats import check_wanted, from_structured_outputs
from gateway.openai.generation_fields import GenerationFields


def check_shared(request: GenerationFields) -> None:
    """Refuse combinations of the fields of all endpoints that generate."""
    invalid = "invalid_value"
    options = request.stream_options
    if options is not None and not request.stream:
        raise BadRequestError("'stream_options' is only allowed when 'stream' is true.", "stream_options", invalid)
    if options is not None and options.continuous_usage_stats and not options.include_usage:
        param = "stream_options.continuous_usage_stats"
        raise BadRequestError(f"'{param}' is only allowed when 'stream_options.include_usage' is true.", param, invalid)
    if request.best_of is not None and request.best_of < request.n:
        raise BadRequestError(f"'best_of' must be at least 'n', which is {request.n}.", "best_of", invalid)
    if request.stream and request.candidates > request.n:
        raise BadRequestError(
            "'best_of' cannot be streamed: the best is known at the end. Set 'stream' to false.", "best_of", invalid
        )
    if request.stream and request.prompt_logprobs is not None:
        raise BadRequestError(
            "'prompt_logprobs' is not available in a stream. Set 'stream' to false.", "prompt_logprobs", invalid
        )
    if request.prompt_logprobs == -1:
        message = (
            "'prompt_logprobs' of -1 asks for the whole vocabulary, which no engine here gives; ask for 20 at most."
        )
        raise BadRequestError(message, "prompt_logprobs", "unsupported_parameter")
    if request.truncate_prompt_tokens == 0:
        raise BadRequestError(
            "'truncate_prompt_tokens' must leave a token; -1 keeps what fits.", "truncate_prompt_tokens", invalid
        )
    if request.max_tokens is not None and request.min_tokens > request.max_tokens:
        raise BadRequestError("'min_tokens' must be at most 'max_tokens'.", "min_tokens", invalid)
    _check_beams(request)
    _check_forms(request)


def _check_forms(request: GenerationFields) -> None:
    forms = request.forms
    if len(forms) > 1:
        names = " and ".join(f"'{form.path}'" for form in forms[:2])
        raise BadRequestError(
            f"An answer can have one form only, but {names} ask for two.", forms[1].path, "invalid_value"
        )
    given = request.structured_outputs
    if given is not None and not from_structured_outputs(given) and given.json_object is None:
        message = "'structured_outputs' needs one of json, regex, choice, grammar, json_object and structural_tag."
        raise BadRequestError(message, "structured_outputs", "invalid_value")
    for form in forms:
        check_wanted(form)


def _check_beams(request: GenerationFields) -> None:
    invalid = "invalid_value"
    if not request.use_beam_search:
        if request.length_penalty != 1:
            raise BadRequestError(
                "'length_penalty' is only allowed when 'use_beam_search' is true.", "length_penalty", invalid
            )
        return
    if request.stream:
        message = "'use_beam_search' cannot be streamed: the best beam is known at the end. Set 'stream' to false."
        raise BadRequestError(message, "use_beam_search", invalid)
    if request.n > 1:
        raise BadRequestError("'use_beam_search' gives one choice, the best beam; set 'n' to 1.", "n", invalid)
    if (request.best_of or 1) < 2:
        raise BadRequestError("'use_beam_search' needs 'best_of', the number of beams, from 2.", "best_of", invalid)
