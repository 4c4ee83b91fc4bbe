"""Parameters that are not OpenAI's but that other servers of open models have, where they can be served."""

from __future__ import annotations

from typing import Any

from gateway.generation.engine import Capability
from gateway.openai.parameters.row import BOTH, CHAT, COMPLETIONS, Endpoint, Parameter

_GATEWAY = Capability("emulated", "by the gateway")
_UNDECLARED = Capability("impossible", "this model's engine has no input for it.")


def _engine(name: str, form: str, does: str, *neutral: Any, note: str = "") -> Parameter:
    """An extension that lives or dies with the engine."""
    return Parameter(
        name,
        "engine",
        form,
        does,
        source="extension",
        neutral=neutral,
        empty_is_neutral=form.startswith("array"),
        how=_UNDECLARED,
        asks_engine=True,
        openai=note,
    )


def _gateway(
    name: str,
    form: str,
    does: str,
    *neutral: Any,
    endpoints: tuple[Endpoint, ...] = BOTH,
    how: str = "",
    note: str = "",
) -> Parameter:
    """An extension that the gateway serves by itself."""
    return Parameter(
        name,
        "engine",
        form,
        does,
        endpoints,
        source="extension",
        neutral=neutral,
        empty_is_neutral=form.startswith(("array", "object")),
        how=Capability("emulated", how) if how else _GATEWAY,
        openai=note,
    )


_SAMPLING = (
    Parameter(
        "top_k",
        "engine",
        "integer from -1",
        "keeps so many candidates; 0 and -1 keep all",
        source="extension",
        neutral=(0, -1),
        asks_engine=True,
        openai="TensorRT-LLM keeps at most 1024.",
    ),
    _engine("min_p", "number 0 to 1", "drops candidates less probable than this share of the best one", 0),
    _engine(
        "repetition_penalty",
        "number above 0, to 10",
        "divides the logits of tokens that occurred, or multiplies them where they are negative",
        1,
        note="TensorRT-LLM counts the prompt's tokens too, as vLLM does.",
    ),
    _engine(
        "bad_words",
        "array of at most 64 strings",
        "are never written",
        note="Each is banned as the token sequences that usually write it: at the start of a text, after a space and"
        " within a word. Other ways to split it into tokens stay possible.",
    ),
    _engine(
        "use_beam_search",
        "boolean",
        "searches with `best_of` beams; the best beam is the answer",
        False,
        note="Needs `best_of` from 2, `n: 1` and no stream: a beam is only known at the end.",
    ),
    _engine("length_penalty", "number -10 to 10", "is the exponent of the length in a beam's score", 1, note="Only with"
    " `use_beam_search`; else 400 unless it is 1."),
)  # fmt: skip

_ADDITIONS = (
    _engine(
        "prompt_table",
        "string",
        "puts the virtual tokens of this prompt table of the model before the prompt (p-tuning)",
        note="One of the model's `prompt_tables`; `usage` does not count its tokens. Adapters (LoRA) are models of"
        " their own: `model`.",
    ),
)

_CACHE = (
    _engine(
        "cache_salt",
        "string of 1 to 1024 characters",
        "keeps the prompt's KV blocks from requests with another salt, so that no timing tells who asked what",
        note="As in vLLM. TensorRT-LLM's backend for Triton has no input for it.",
    ),
)

_DRAFTS = (
    Parameter(
        "num_draft_tokens",
        "engine",
        "integer 0 to 256",
        "lets the draft model guess so many tokens at a time, which the engine checks together; 0 switches it off",
        source="extension",
        neutral=(0,),
        how=_UNDECLARED,
        asks_engine=True,
        openai="What it is where a request does not say, the operator sets (`speculative`). A greedy answer is the same"
        " with any number; a sampled one is as probable, but another for the same `seed`. Above 0 it does not go with"
        " a form of the answer, demanded calls, `use_beam_search` and `prompt_logprobs`: 400. See"
        " [configuration.md](configuration.md#drafts).",
    ),
)

_ENDS = (
    _engine("min_tokens", "integer from 0", "is the number of tokens before which nothing ends the answer", 0),
    _gateway("ignore_eos", "boolean", "goes on after the model's end tokens", False, how="by sending no end id"),
    _engine("stop_token_ids", "array of at most 64 token ids", "end the answer, as `stop` does"),
    _gateway(
        "include_stop_str_in_output", "boolean", "leaves what ended the answer in its text", False,
        note="A model's own end tokens are never part of the text.",
    ),
    _gateway("no_stop_trim", "boolean", "is SGLang's name of `include_stop_str_in_output`", False),
)  # fmt: skip

_OUTPUT = (
    _engine(
        "prompt_logprobs",
        "integer 0 to 20",
        "returns the log-prob of each prompt token, with so many alternatives",
        note="-1, the whole vocabulary, is 400. In the answer beside `choices`, in completions in each choice; null for"
        " the first token, as vLLM has it. Not in a stream: 400.",
    ),
    _engine("return_token_ids", "boolean", "returns `prompt_token_ids`, and `token_ids` in each choice", False),
    _gateway(
        "return_tokens_as_token_ids",
        "boolean",
        "names tokens in log-probs by their ids, such as `token_id:7`",
        False,
        note="`bytes` are those of the text as ever.",
    ),
    Parameter(
        "detokenize",
        "engine",
        "boolean",
        "false gives `token_ids` in place of the text, which is empty",
        COMPLETIONS,
        source="extension",
        neutral=(True,),
        how=_UNDECLARED,
        asks_engine=True,
        openai="As in trtllm-serve. Stop strings end the answer as ever.",
    ),
    _engine("skip_special_tokens", "boolean", "leaves special tokens out of the text", True),
    Parameter(
        "echo",
        "engine",
        "boolean",
        "puts the text that the answer continues before it",
        CHAT,
        source="extension",
        neutral=(False,),
        how=_GATEWAY,
        openai="Only where the last message is the assistant's and is continued (`continue_final_message`), and without"
        " tools: otherwise there is nothing of the same author to repeat, and it is 400.",
    ),
    _gateway(
        "stream_options.continuous_usage_stats",
        "boolean",
        "puts the usage so far into every chunk",
        False,
        how="counted from token ids",
        note="Needs `include_usage`; else 400.",
    ),
    Parameter(
        "best_of",
        "engine",
        "integer 1 to 20",
        "makes more candidates than `n` and keeps the best; with `use_beam_search` it is the number of beams",
        CHAT,
        source="extension",
        neutral=(1,),
        how=Capability("emulated", "candidates are parallel requests to the engine, ranked by mean log-prob"),
        openai="OpenAI has it in completions only. Less than `n`, or a stream, is 400.",
    ),
)

_PROMPT = (
    _gateway(
        "truncate_prompt_tokens",
        "integer from 1, or -1",
        "keeps so many of the prompt's tokens, -1 as many as fit beside `max_tokens`",
        how="the rendered prompt is cut by tokens",
        note="As in vLLM: the last ones, whatever of the conversation or its template is lost; a BOS that goes before a"
        " text stays. More than fit is 400, and so is a prompt of more than 131,072 tokens, or than the context where"
        " that is more.",
    ),
    _gateway(
        "truncation_side",
        "string: left or right",
        "is where `truncate_prompt_tokens` cuts",
        "left",
    ),
    _gateway("add_generation_prompt", "boolean", "opens the assistant's turn", True, endpoints=CHAT),
    _gateway(
        "continue_final_message",
        "boolean",
        "ends the prompt inside the last message, which the answer continues",
        False,
        endpoints=CHAT,
        how="the rendered prompt is cut behind the last message's text",
        note="With `add_generation_prompt: true` given too it is 400, as with vLLM: they exclude each other. Without"
        " it, no turn is opened.",
    ),
    Parameter(
        "chat_template",
        "engine",
        "string",
        "is a Jinja template to use instead of the model's",
        CHAT,
        source="extension",
        how=Capability("impossible", "the operator has not allowed it (allow_request_template)."),
        openai="Its author can write control tokens. It is rendered in a process of its own, in 5 s and 512 MiB;"
        " more is 400.",
    ),
    _gateway(
        "chat_template_kwargs",
        "object",
        "gives names to the chat template, such as `enable_thinking`",
        endpoints=CHAT,
        note="They replace none of the template's own names (`messages`, `tools`, special tokens): 400. A name that the"
        " template does not read is an unknown field.",
    ),
    Parameter(
        "documents",
        "engine",
        "array of objects",
        "are given to the chat template",
        CHAT,
        source="extension",
        empty_is_neutral=True,
        how=Capability(
            "impossible", "the chat template of this model does not show documents; put them into a message."
        ),
    ),
    _gateway(
        "add_special_tokens",
        "boolean",
        "puts BOS before the prompt where the tokenizer has it so",
        True,
        endpoints=COMPLETIONS,
        note="Never a second BOS.",
    ),
)

EXTENSIONS: tuple[Parameter, ...] = (*_SAMPLING, *_ADDITIONS, *_CACHE, *_DRAFTS, *_ENDS, *_OUTPUT, *_PROMPT)
"""Extensions that are served wherever the engine can."""
