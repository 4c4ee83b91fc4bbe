"""Parameters that give an answer a structure: tools, response formats, and the extensions for them."""

from __future__ import annotations

from gateway.generation.engine import Capability
from gateway.openai.parameters.row import BOTH, CHAT, Parameter

_GUIDED = Capability("native", "by the engine's guided decoding")
_NO_GUIDES = Capability("impossible", "this model's engine has no guided decoding.")
_SHOWN = Capability("emulated", "shown by the chat template; the model family's parser reads the calls")

TOOLS: tuple[Parameter, ...] = (
    Parameter(
        "tools",
        "engine",
        "array of at most 128 functions",
        "lets the model call functions",
        CHAT,
        empty_is_neutral=True,
        how=_SHOWN,
        openai="Functions only, no custom tools. Where the template shows no tools, or it is not known how the model"
        " writes calls, only a demanded call works (`tool_choice`). See [tools.md](tools.md).",
    ),
    Parameter(
        "tool_choice",
        "engine",
        "string: none, auto or required; or object: a function, or allowed tools",
        "forbids, allows or demands calls",
        CHAT,
        neutral=("none", "auto"),
        asks_engine=True,
        how=_NO_GUIDES,
        openai="Demanded calls need guided decoding by JSON schema. With `none` the template shows no tools, with"
        " `auto` those that are allowed, else all.",
    ),
    Parameter(
        "parallel_tool_calls",
        "engine",
        "boolean",
        "allows several calls in one answer",
        CHAT,
        neutral=(True,),
        how=Capability("emulated", "by the guide; where calls are not guided, those after the first are dropped"),
    ),
    Parameter(
        "functions",
        "engine",
        "array of 1 to 128 functions",
        "is the old form of `tools`",
        CHAT,
        how=_SHOWN,
        openai="Answers have the old form, too: `function_call`, one at most.",
    ),
    Parameter(
        "function_call",
        "engine",
        "string: none or auto; or object: a function",
        "is the old form of `tool_choice`",
        CHAT,
        neutral=("none", "auto"),
        asks_engine=True,
        how=_NO_GUIDES,
    ),
)
"""OpenAI's own."""

FORMS: tuple[Parameter, ...] = (
    Parameter(
        "response_format",
        "engine",
        "object with a type: text, json_object, json_schema, json, regex, ebnf or structural_tag",
        "gives the answer a form",
        neutral=({"type": "text"},),
        asks_engine=True,
        how=_NO_GUIDES,
        openai="A schema may leave OpenAI's strict subset: the header `x-strict-schema-deviations` says where. What"
        " guides cannot enforce is 400 with its path. OpenAI has the first three types, in chat. The others are"
        " extensions, and so is `schema` beside `json_object`. See [tools.md](tools.md).",
    ),
    *(
        Parameter(name, "engine", form, does, BOTH, "extension", asks_engine=True, how=_NO_GUIDES, openai=note)
        for name, form, does, note in (
            (
                "structured_outputs",
                "object with one of json, regex, choice, grammar, json_object, structural_tag",
                "gives the answer a form",
                "As in vLLM. A grammar is GBNF, as xgrammar reads it.",
            ),
            ("guided_json", "mapping or string", "is `structured_outputs.json`", "An older name of vLLM's."),
            ("guided_regex", "string", "is `structured_outputs.regex`", "An older name of vLLM's."),
            ("guided_choice", "array of strings", "is `structured_outputs.choice`", "An older name of vLLM's."),
            ("guided_grammar", "string", "is `structured_outputs.grammar`", "An older name of vLLM's."),
            ("json_schema", "mapping or string", "is `structured_outputs.json`", "SGLang's and llama.cpp's name."),
            ("regex", "string", "is `structured_outputs.regex`", "SGLang's name."),
            ("ebnf", "string", "is `structured_outputs.grammar`", "SGLang's name."),
            ("grammar", "string", "is `structured_outputs.grammar`", "llama.cpp's name."),
        )
    ),
)
"""Forms of the answer."""
