"""Llama 3 JSON: a call is a JSON object, alone or behind ``<|python_tag|>``.

    {"name": "f", "parameters": {"a": 1}}
    <|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}<|eom_id|>

Sources: https://github.com/meta-llama/llama-models (models/llama3_3/prompt_format.md: custom tools in JSON,
``<|python_tag|>`` and ``<|eom_id|>``) and the chat template of https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct.
"""

from __future__ import annotations

from gateway.families.base import BaseFamily
from gateway.families.call_text import CallTextParser
from gateway.families.family import Parser, Turn
from gateway.families.markers import Markers
from gateway.families.natively import arguments_format
from gateway.families.structural import Format, tag, triggered

_TAG = "<|python_tag|>"
_END_OF_MESSAGE = "<|eom_id|>"


class Llama3Family(BaseFamily):
    """Llama 3.1, 3.2 and 3.3 with JSON calls."""

    name = "llama3_json"
    markers = Markers(_TAG, _END_OF_MESSAGE)
    stop = (_END_OF_MESSAGE,)
    signs = ((_TAG,), ("<|start_header_id|>", '"parameters": '))
    shared_types = frozenset({"llama", "mllama", "LlamaForCausalLM", "MllamaForConditionalGeneration"})

    def native_parser(self, turn: Turn, prompt: str, *, eager: bool) -> Parser:
        """A parser of JSON calls."""
        del prompt
        return CallTextParser(turn, eager=eager, before=_TAG, ends=(_END_OF_MESSAGE,))

    def native_calls(self, turn: Turn, *, demanded: bool) -> Format | None:
        """Objects as the template writes them; one an answer, for the model was taught no more."""
        begin = '{"name": "'
        tags = [tag(f'{begin}{tool.name}", "parameters": ', arguments_format(tool), "}") for tool in turn.tools]
        return triggered(begin, tags, demanded=demanded, once=True)
