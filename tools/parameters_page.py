"""Writes docs/reference/parameters.md from the table of parameters and the configuration of the repository's models.

Run ``python -m tools.parameters_page [FILE]`` in the root of the repository.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gateway.api.openai.parameters.row import EndpointName, Parameter
from gateway.api.openai.parameters.table import PARAMETERS, REQUESTS, served
from gateway.generation import Capability
from gateway.text.contract import ENSEMBLE, LLMAPI, TENSORRT_LLM, ModelSpec
from gateway.triton.abilities import EngineOptions, read_abilities
from gateway.triton.dialects.llmapi import llmapi_capabilities, read_form
from gateway.triton.dialects.tensorrt_llm import capabilities
from gateway.triton.inspection import read_model_file
from gateway.triton.model_view import ModelView
from tools.type_text import type_text

_REPOSITORY = Path("triton_repo")

_HEAD = """\
# Parameters

<!-- Written by `python -m tools.parameters_page`: change the fields of the requests in gateway/api/openai/ instead. -->

For developers of clients: every parameter of `POST /v1/chat/completions` and `POST /v1/completions` that this gateway
knows, OpenAI's own and extensions that other servers of open models have too. Each is of one of these classes:

- **engine**: it shapes the answer, *native* by the engine or *emulated* exactly by the gateway. Where it depends on the
  engine, `GET /v1/models/{id}` tells under `capabilities` how the model at hand serves it, or why it cannot; so does
  `gateway check URL --verbose`.
- **annotation**: it says something about the request. It is checked and written to the access log, and is not meant
  to have an effect.
- **impossible**: nothing here can serve it.

A **neutral value** changes nothing and is accepted always, whatever the class; null is neutral everywhere and means
absent. An entry has the name, the type, the neutral values, what the parameter does, how it is served, and where that
differs from OpenAI's own server.

The operator's policy for each model decides about the rest (`policies`, see [configuration.md](configuration.md)):

| policy | for parameters that this model cannot serve | for hints among them, and fields that are not defined |
|---|---|---|
| `strict` | 400 that names the parameter (the default) | the same |
| `warn` | served without it, named in the header `x-ignored-parameters` | the same (the default) |
| `ignore` | served without it | the same |

`warn` and `ignore` count them in the metric `gateway_ignored_parameters_total`. A hint is a parameter without which the
answer is as good: a wish for the model's style, which agents send by default, or for the request's route in a cluster.
"""

_TAIL = """\
## Combinations that are rejected

Each of these is 400 and names the parameter at fault. The first six are OpenAI's rules (OpenAI rejects both limits
even where they agree); the others follow from what the extensions mean.

| together | why |
|---|---|
| `max_tokens` and `max_completion_tokens` that differ | they mean the same limit |
| `top_logprobs` without `logprobs` | alternatives of nothing |
| `stream_options` without `stream` | there are no chunks |
| `best_of` less than `n` | there are fewer than are to be shown |
| `best_of` more than `n`, with `stream` | the best is known at the end |
| more `stop` strings than 4, or `max_stops` | |
| `continuous_usage_stats` without `include_usage` | usage was not wanted |
| `min_tokens` more than the limit of the answer | |
| `use_beam_search` with `stream`, with `n` above 1, or without `best_of` from 2 | the best beam is known at the end |
| `length_penalty` other than 1 without `use_beam_search` | it scores beams |
| `continue_final_message` with `add_generation_prompt: true` | one continues a turn, the other opens one |
| `continue_final_message` with a last message without text | nothing to continue |
| `continue_final_message` with a last message with calls, or not the user's or assistant's | text would be lost |
| `reasoning` and `reasoning_content` of one message that differ | they mean the same text |
| `echo` in chat without `continue_final_message`, or after a message that is not the assistant's | nothing to repeat |
| `echo` in chat with `tools` | a call repeats no text |
| two of `response_format`, `structured_outputs` and the fields that name one form | an answer has one form |
| a form that is not JSON, with tools that may be called | calls are JSON |
| `tools` and `functions`, or the choices of both | the one is the old form of the other |
| `tool_choice` or `function_call` that demands calls or names tools, without these tools | nothing to call |
| `prompt_logprobs` with `stream` | they belong to the whole answer |
| `num_draft_tokens` with a form, demanded calls, beams or `prompt_logprobs` | a draft model goes with none of them |
| `prediction` with `use_beam_search` | a prediction is one sequence |
| `chat_template_kwargs` with a name of the template's own | it would replace the conversation |

## Where answers differ from OpenAI's

- `usage.prompt_tokens_details` is absent if it is unknown how much of the prompt was cached: with engines that do not
  tell, and after answers that a stop string ended, which the gateway leaves before the engine's last word.
- With `best_of`, `usage` counts all candidates, as OpenAI does.
- The tokens of a `prediction` with which the answer begins (by their ids) are `accepted_prediction_tokens`, all others
  rejected; with `n`, in each choice. Tokens that a draft model guessed are not in `usage`.
- `service_tier` in an answer is the tier that served it if the request named one, else absent.
- `system_fingerprint` is absent: the engine has no such mark.
- Each choice has `stop_reason`, as in vLLM: the stop string or the stop token's id that ended it, null where something
  else did. In a stream it is in the last chunk of the choice.
- Chunks have no `obfuscation` unless `stream_options.include_obfuscation` is true; OpenAI's have it unless it is false.
- `finish_reason` is `stop`, `length`, `tool_calls` or `function_call`.
"""


_ENGINES = """\
## How engines serve them

What depends on the engine: where prompts and answers travel as token ids to the engine model, and where they travel as
text through the ensemble or to the LLM API's model (see [served.md](served.md)). For TensorRT-LLM 1.2.1 and, of the
LLM API, 1.3 as they ship, and for the engines of this project's `triton_repo/` as they are configured there. `no` is
*impossible*. What the operator can add, such as log-probs from logits or beams, is not in this table but in the
capabilities of the model at hand.

| parameter | 1.2.1, ids | 1.2.1, text | LLM API 1.2.1 | LLM API 1.3 | `triton_repo`, ids | `triton_repo`, text |
|---|---|---|---|---|---|---|
"""


def render(repository: Path) -> str:
    """The whole page.

    Args:
        repository: the project's model repository.
    """
    parts = [_HEAD]
    for title, rows in _sections():
        parts += [f"## {title}\n", *_entries(rows, _types())]
    return "\n".join([*parts, _ENGINES + "\n".join(_by_engine(repository)) + "\n", _TAIL])


def _by_engine(repository: Path) -> Iterator[str]:
    own = [read_model_file(repository / name / "config.pbtxt") for name in ("tensorrt_llm", "ensemble")]
    stock = [_stock(view, spec) for view, spec in zip(own, (TENSORRT_LLM, ENSEMBLE), strict=True)]
    of_stock, of_own = ([_capabilities(view, engine) for view in (engine, *rest)] for engine, *rest in (stock, own))
    maps = [*of_stock, _of_llmapi((1, 2, 1)), _of_llmapi((1, 3)), *of_own]
    for row in PARAMETERS:
        if row.asks_engine:
            cells = [_word(served(row, known)) for known in maps]
            yield f"| `{row.name}`{_where(row.endpoints)} | {' | '.join(cells)} |"


def _stock(view: ModelView, spec: ModelSpec) -> ModelView:
    """The model without what is this project's own."""
    own = {tensor.name for tensor in (*spec.inputs, *spec.outputs) if tensor.extension}
    added = ("engine", "tokens_per_block", "guided_decoding_guide_types")
    parameters = {key: value for key, value in view.parameters.items() if key not in added}
    return replace(view, inputs=view.inputs - own, outputs=view.outputs - own, parameters=parameters)


def _capabilities(view: ModelView, engine: ModelView) -> Mapping[str, Capability]:
    by_ids = view is engine
    abilities = read_abilities(view, engine, EngineOptions(), token_ids="output_ids" in view.outputs)
    return capabilities(view, engine, abilities, prompt_ids=by_ids)


def _of_llmapi(version: tuple[int, ...]) -> Mapping[str, Capability]:
    newer = {"lora_id", "lora_name", "lora_path", "lora_ckpt_source", "image_url"} if version < (1, 3) else set()
    view = ModelView(
        name=LLMAPI.name,
        inputs=frozenset(tensor.name for tensor in LLMAPI.inputs) - newer,
        required=frozenset({"text_input"}),
        outputs=frozenset(tensor.name for tensor in LLMAPI.outputs),
        batched=False,
        decoupled=True,
        parameters={},
    )
    return llmapi_capabilities(view, read_form(view, EngineOptions(version=version)))


def _word(capability: Capability) -> str:
    if capability.how == "impossible":
        return "no"
    return capability.how if capability.limit is None else f"{capability.how}, up to {capability.limit}"


def _sections() -> Iterator[tuple[str, list[Parameter]]]:
    def pick(kind: str, source: str) -> list[Parameter]:
        return [row for row in PARAMETERS if row.kind == kind and row.source == source]

    yield "OpenAI's parameters", pick("engine", "OpenAI")
    yield "Extensions", pick("engine", "extension")
    yield "Annotations", pick("annotation", "OpenAI")
    yield "OpenAI's parameters that are not served", pick("impossible", "OpenAI")
    yield "Others' parameters that are not served", pick("impossible", "extension")


def _types() -> dict[tuple[EndpointName, str], str]:
    """Types of all fields of requests, by endpoint and name."""
    found: dict[tuple[EndpointName, str], str] = {}
    for endpoint, model in REQUESTS.items():
        schema = model.model_json_schema()
        classes = schema["$defs"]
        nested = {f"stream_options.{name}": field for name, field in classes["StreamOptions"]["properties"].items()}
        for name, field in (schema["properties"] | nested).items():
            found[endpoint, name] = type_text(field, classes)
    return found


def _entries(rows: list[Parameter], types: Mapping[tuple[EndpointName, str], str]) -> Iterator[str]:
    """An item of a list for each parameter: its notes are too long for a table."""
    for row in rows:
        neutral = f"; neutral `{row.neutral_text}`" if row.neutral_text else ""
        form = row.type or types[row.endpoints[0], row.name]
        text = f"**`{row.name}`**{_where(row.endpoints)}, {form}{neutral}: {row.does}. *{_how(row)}.* {row.note}"
        yield textwrap.fill(
            text.strip(), 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    yield ""


def _where(endpoints: tuple[EndpointName, ...]) -> str:
    return "" if len(endpoints) > 1 else f" ({endpoints[0]})"


def _how(row: Parameter) -> str:
    hint = " (a hint)" if row.hint else ""
    if row.kind == "impossible":
        return f"Not served{hint}: {row.how.note.rstrip('.')}"
    if row.kind == "annotation":
        return row.how.note.rstrip(".").capitalize()
    if row.asks_engine:
        return "Depends on the engine, see below"
    if row.how.how == "impossible":
        return f"Depends on the model; where it cannot be{hint}: {row.how.note.rstrip('.')}"
    return f"{row.how.how.capitalize()}: {row.how.note.rstrip('.')}"


def main() -> None:
    """Write the page to the file that the command line names, docs/reference/parameters.md without one."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/reference/parameters.md")
    path.write_text(render(_REPOSITORY), encoding="utf-8")


if __name__ == "__main__":
    main()
