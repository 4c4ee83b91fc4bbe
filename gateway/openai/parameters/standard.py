"""Parameters that OpenAI's own API has and that are served or are annotations."""

from __future__ import annotations

from gateway.generation.engine import Capability
from gateway.openai.parameters.row import BOTH, CHAT, COMPLETIONS, Parameter

_GATEWAY = Capability("emulated", "by the gateway")
_NOTHING = Capability("emulated", "checked and logged; without effect by nature")

_REQUEST = (
    Parameter("model", "engine", "string", "names the served model, or an alias of it", how=_GATEWAY),
    Parameter(
        "messages",
        "engine",
        "array of messages",
        "is the conversation: roles system, developer, user, assistant, tool and function; content as a string or text"
        " parts",
        CHAT,
        how=Capability("emulated", "rendered by the chat template and tokenized"),
        openai="A developer message is a system message where the template has no such role. Images and audio are"
        " refused. Control-token text in content stays text (`escape_special_tokens`).",
    ),
    Parameter(
        "prompt",
        "engine",
        "string, array of strings, of token ids, or of arrays of token ids",
        "is the text to continue",
        COMPLETIONS,
        how=Capability("emulated", "tokenized; token ids go as they are"),
        openai="BOS goes first where the tokenizer has it so, unless `add_special_tokens` is false.",
    ),
    Parameter("stream", "engine", "boolean", "sends the answer as Server-Sent Events", neutral=(False,), how=_GATEWAY),
    Parameter("stream_options", "engine", "object", "has the options of a stream", empty_is_neutral=True, how=_GATEWAY),
    Parameter(
        "stream_options.include_usage",
        "engine",
        "boolean",
        "adds a last chunk with the usage of the whole answer",
        neutral=(False,),
        how=Capability("emulated", "counted from token ids"),
    ),
    Parameter(
        "stream_options.include_obfuscation",
        "engine",
        "boolean",
        "pads chunks by a field `obfuscation`, so that their lengths do not tell those of the tokens",
        neutral=(False,),
        how=Capability("emulated", "every chunk is filled up to a multiple of 64 bytes"),
        openai="Off unless it is true; with OpenAI it is on unless it is false. It costs some 40 bytes a chunk, and the"
        " fast way of a plain stream.",
    ),
)

_SAMPLING = (
    Parameter(
        "temperature",
        "engine",
        "number 0 to 2",
        "divides the logits; 0 is greedy",
        neutral=(1,),
        asks_engine=True,
        openai="Below 0.0001 is greedy: dividing by less overflows float32, and the outcome is the same.",
    ),
    Parameter(
        "top_p",
        "engine",
        "number 0 to 1",
        "keeps the smallest set of candidates with this mass; 0 is greedy",
        neutral=(1,),
        asks_engine=True,
    ),
    Parameter(
        "seed",
        "engine",
        "integer, 64 bits, signed",
        "makes sampling repeatable",
        asks_engine=True,
        openai="Without one it is random. Choice i of `n` has seed + i, as 64 bits: after the largest comes the"
        " smallest. The same seed gives the same answer only at equal load: batch sizes"
        " change the last bits of the engine's numbers. With `num_draft_tokens`, here or in the operator's settings, a"
        " seed gives another answer than without, and another for each number. `system_fingerprint` is absent.",
    ),
    Parameter(
        "presence_penalty",
        "engine",
        "number -2 to 2",
        "lowers the logit of every token that occurred",
        neutral=(0,),
        asks_engine=True,
        openai="TensorRT-LLM counts the prompt's tokens too; OpenAI counts the answer's.",
    ),
    Parameter(
        "frequency_penalty",
        "engine",
        "number -2 to 2",
        "lowers the logit of a token by every time that it occurred",
        neutral=(0,),
        asks_engine=True,
        openai="TensorRT-LLM counts the prompt's tokens too; OpenAI counts the answer's.",
    ),
    Parameter(
        "logit_bias",
        "engine",
        "object of token id to number -100 to 100",
        "is added to the logits of these ids; -100 is never, 100 is always",
        empty_is_neutral=True,
        asks_engine=True,
        openai="Ids are those of the model's own tokenizer, see `POST /tokenize`; an id outside its vocabulary is 400."
        " -100 and 100 are made absolute: the engine gets a bias that no logit outweighs.",
    ),
)

_LENGTH = (
    Parameter(
        "max_tokens",
        "engine",
        "integer from 1",
        "limits the answer",
        how=_GATEWAY,
        openai="The same as `max_completion_tokens` in chat; both with different values are 400. Absent: the rest of"
        " the context, in completions too (OpenAI: 16 there). More than the context leaves is clamped, and `usage`"
        " tells; with `max_tokens_policy: refuse` it is 400, as with OpenAI. Completions take 0 with `echo`.",
    ),
    Parameter(
        "max_completion_tokens", "engine", "integer from 1", "limits the answer", CHAT, how=_GATEWAY, openai="As above."
    ),
    Parameter(
        "stop",
        "engine",
        "string, or array of at most 4",
        "ends the answer before this text",
        empty_is_neutral=True,
        how=Capability("emulated", "matched on the text by the gateway, whatever the tokens; then the engine is told"),
        openai="The operator may allow more than 4 (`max_stops`).",
    ),
    Parameter(
        "n",
        "engine",
        "integer 1 to 128",
        "is the number of choices",
        neutral=(1,),
        how=Capability("emulated", "by parallel requests to the engine"),
        openai="Choice i has seed + i, and equals a request of its own with that seed. Prompt tokens count once in"
        " `usage`. If one choice fails, all do.",
    ),
)

_PREDICTION = (
    Parameter(
        "prediction",
        "engine",
        "object of type and content",
        "is how the answer is thought to begin: what the engine would say itself costs it fewer steps",
        CHAT,
        how=Capability("impossible", "this model's engine takes no draft tokens."),
        asks_engine=True,
        openai="No prediction shortens or worsens an answer: a greedy one is the same, a sampled one as probable (with"
        " `triton_repo`'s reference engine the same too). It helps up to the first token that differs, while OpenAI's"
        " servers find back into it further on: `usage` counts the tokens up to there as accepted, all others as"
        " rejected, and rejected ones are no `completion_tokens`. An empty text predicts nothing; an empty list of"
        " parts is 400.",
    ),
)

_LOGPROBS = (
    Parameter(
        "logprobs",
        "engine",
        "boolean",
        "returns the log-prob of each token",
        CHAT,
        neutral=(False,),
        asks_engine=True,
        openai="They are of the distribution after temperature, bias and penalties, before top_k, top_p and min_p: that"
        " is what the engine tells. OpenAI does not say which distribution its own are of.",
    ),
    Parameter(
        "top_logprobs",
        "engine",
        "integer 0 to 20",
        "returns alternatives of each token",
        CHAT,
        neutral=(0,),
        asks_engine=True,
        openai="Without `logprobs` it is 400, as with OpenAI.",
    ),
    Parameter(
        "logprobs",
        "engine",
        "integer 0 to 20",
        "returns the log-prob of each token, and alternatives",
        COMPLETIONS,
        asks_engine=True,
        openai="OpenAI allows at most 5.",
    ),
    Parameter(
        "echo",
        "engine",
        "boolean",
        "puts the prompt before the answer",
        COMPLETIONS,
        neutral=(False,),
        how=_GATEWAY,
        openai="With `logprobs` the prompt's tokens have log-probs too, where the engine has `prompt_logprobs`.",
    ),
    Parameter(
        "best_of",
        "engine",
        "integer 1 to 20",
        "makes more candidates than `n` and keeps the best",
        COMPLETIONS,
        neutral=(1,),
        how=Capability("emulated", "candidates are parallel requests to the engine, ranked by mean log-prob"),
        openai="With `use_beam_search` it is the number of beams. Less than `n`, or a stream, is 400.",
    ),
)

_TEMPLATE = (
    Parameter(
        "reasoning_effort",
        "engine",
        "string: none, minimal, low, medium, high, xhigh or max",
        "is told to the chat template",
        CHAT,
        neutral=("none",),
        how=Capability("impossible", "the chat template of this model does not read it."),
        hint=True,
        openai="It reaches the model by its chat template alone; a template that does not read it makes it"
        " impossible, and it is a hint.",
    ),
)

_ANNOTATIONS = tuple(
    Parameter(name, "annotation", form, does, endpoints, neutral=neutral, how=_NOTHING, openai=note)
    for name, form, does, endpoints, neutral, note in (
        ("user", "string", "names the end user", BOTH, (), "It is in the access log."),
        (
            "safety_identifier",
            "string of at most 64 characters",
            "names the end user",
            CHAT,
            (),
            "It is in the access log.",
        ),
        (
            "metadata",
            "object of at most 16 strings",
            "annotates the request; keys have at most 64 characters, values 512",
            CHAT,
            (),
            "It is in the access log; there is no list of stored completions to find it in.",
        ),
        ("store", "boolean", "asks to keep the answer", CHAT, (False,), "Nothing is ever kept."),
        (
            "service_tier",
            "string: auto, default, flex, scale, priority or fast",
            "chooses a tier",
            CHAT,
            ("auto", "default"),
            "There is one tier: the answer says `default`.",
        ),
        ("prompt_cache_key", "string", "groups requests with a common prefix", CHAT, (), "The KV cache needs no key."),
        ("prompt_cache_options", "object", "asks how to cache the prompt", CHAT, (), "The engine decides."),
        (
            "prompt_cache_retention",
            "string: in_memory or 24h",
            "asks how long to cache the prompt",
            CHAT,
            (),
            "The engine decides.",
        ),
    )
)

STANDARD: tuple[Parameter, ...] = (
    *_REQUEST,
    *_SAMPLING,
    *_LENGTH,
    *_PREDICTION,
    *_LOGPROBS,
    *_TEMPLATE,
    *_ANNOTATIONS,
)
"""OpenAI's parameters with an effect here, and its annotations."""
