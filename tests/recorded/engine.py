"""A Triton that says what prompts tell it to say: the same on every machine, for it computes nothing.

The text behind the last ``say:`` of a prompt is the answer, a byte a token; of alternatives between ``||`` the seed
chooses one. Beside it stand directions, of which a turn of the scripted engine is made: ``<<chunk 3>>`` sends three
tokens in a response, ``<<finish WORD>>`` ends with that finish reason, ``<<cached 5>>`` tells of cached tokens; behind
the text ``<<error TEXT>>`` fails as Triton does within a stream, ``<<abort STATUS TEXT>>`` as gRPC does, and
``<<vanish>>`` ends the stream without a final response.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tritonclient.grpc import model_config_pb2, service_pb2
from tritonclient.utils import deserialize_bytes_tensor

from tests.scripted_engine.turns import Asked, ScriptedError, Turn, cut, play
from tests.triton.scripted_triton import ScriptedTriton, drop_tensors, stock_config, stock_configs

MAX_SEQ_LEN = 2048
DEFAULT = "Hello, world."

SPECIAL = ("<|im_start|>", "<|im_end|>")
PLAIN = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = (
    "{% for tool in tools or [] %}[tool {{ tool | tojson }}]{% endfor %}"
    "{% for document in documents or [] %}[document {{ document | tojson }}]{% endfor %}"
    "{% if style is defined %}[style {{ style }}]{% endif %}"
    "{% for message in messages %}"
    "{% if message.content == 'refuse' %}{{ raise_exception('These messages are refused.') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
PLAIN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

# Of an engine as TensorRT-LLM ships it: what only this project's have is not there.
_EXTENSIONS = {
    "return_finish_reason", "num_top_log_probs", "num_prompt_log_probs", "min_p", "cache_salt", "finish_reason",
    "top_log_probs_ids", "top_log_probs", "prompt_log_probs", "prompt_log_probs_ranks", "prompt_top_log_probs_ids",
    "prompt_top_log_probs", "num_cached_tokens",
}  # fmt: skip
_OF_TOKENS = {"output_ids", "sequence_length", "output_log_probs", "top_log_probs_ids", "top_log_probs"}
_FORMATS = {"INT32": "i", "INT64": "q", "UINT64": "Q", "UINT8": "B", "FP32": "f", "FP16": "e", "BOOL": "?"}
_RANDOM = range(2**32, 2**63)  # of a seed that nobody gave


def write_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """A byte-level tokenizer without merges: one token a byte, and a few control tokens; its template shows tools."""
    vocab = {character: index for index, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in PLAIN])
    tokenizer.save(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("<|im_end|>")
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    return tokenizer


def configurations() -> dict[str, Any]:
    """The project's models, an engine as TensorRT-LLM ships it, one with beams, an ensemble of text, encoders."""
    filled = {"TRITON_ENGINE": "reference", "MAX_SEQ_LEN": str(MAX_SEQ_LEN)}
    found = {name: stock_config(name, **filled) for name in stock_configs()}
    bare = copy.deepcopy(found["tensorrt_llm"])
    drop_tensors(bare, _EXTENSIONS | {"draft_input_ids", "guided_decoding_guide_type", "guided_decoding_guide"})
    for name in ("engine", "guided_decoding_guide_types"):
        del bare.parameters[name]
    beams = copy.deepcopy(found["tensorrt_llm"])
    beams.parameters["max_beam_width"].string_value = "4"
    text = copy.deepcopy(found["ensemble"])
    drop_tensors(text, _OF_TOKENS)
    found |= {"bare": bare, "beams": beams, "text": text}
    found |= {name: _encoder(tensor, length) for name, (tensor, length, _) in ENCODERS.items()}
    for name, config in found.items():
        config.name = name
    return found


def _encoder(tensor: str, length: int) -> Any:
    config = model_config_pb2.ModelConfig(backend="python", max_batch_size=2)
    config.input.add(name=tensor, data_type=model_config_pb2.TYPE_STRING, dims=[length])
    config.output.add(name="numbers", data_type=model_config_pb2.TYPE_FP32, dims=[-1])
    config.output.add(name="token_count", data_type=model_config_pb2.TYPE_INT32, dims=[1])
    return config


ENCODERS: dict[str, tuple[str, int, Callable[..., list[float]]]] = {
    "vectors": ("text", 1, lambda text: [len(text), text.count("e"), 0.5, -1]),
    "ranks": ("pairs", 2, lambda query, text: [sum(letter in query for letter in text) / (len(text) or 1)]),
    "classes": ("text", 1, lambda text: [text.count("e"), len(text)]),
}
"""Encoders by name: the input, its texts of an item, and the numbers that come of them."""


class Wanted:
    """A request to an engine, read.

    Attributes:
        inputs: the values of each tensor.
        outputs: names of those that are wanted.
    """

    def __init__(self, request: Any, tokenizer: tokenizers.Tokenizer) -> None:
        self.id: str = request.id
        self.model: str = request.model_name
        self.inputs = {
            tensor.name: _values(tensor.datatype, raw)
            for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        self.outputs = {output.name for output in request.outputs}
        self._tokenizer = tokenizer
        ids = self.inputs.get("input_ids", [])
        self.prompt = tokenizer.decode(ids, skip_special_tokens=False) if ids else self.first("text_input", "")

    def first(self, name: str, default: Any) -> Any:
        """The first value of an input."""
        return self.inputs.get(name, [default])[0]

    @property
    def seed(self) -> int:
        """What the request gave as its seed; 0 where it gave none, and the gateway drew one."""
        seed = int(self.first("seed", 0))
        return 0 if seed in _RANDOM else seed

    @property
    def counts(self) -> bool:
        """Whether a client's request made it: probes, and the end of a request, come when they may."""
        return not self.id.startswith("probe") and not self.first("stop", False)

    def line(self) -> str:
        """All of it, on a line."""
        shown = []
        for name, values in sorted(self.inputs.items()):
            if name == "input_ids":
                text = f"{json.dumps(self.prompt, ensure_ascii=False)} in {len(values)}"
            elif name == "embedding_bias":
                text = str({place: value for place, value in enumerate(values) if value})
            elif name == "seed" and values[0] in _RANDOM:
                text = "random"
            else:
                text = json.dumps(values[0] if len(values) == 1 else values, ensure_ascii=False)
            shown.append(f"{name}={text}")
        return f"{self.model} asked for {' '.join(sorted(self.outputs))}: {', '.join(shown)}"


def _values(datatype: str, raw: bytes) -> list[Any]:
    if datatype != "BYTES":
        return list(struct.unpack(f"<{len(raw) // struct.calcsize(_FORMATS[datatype])}{_FORMATS[datatype]}", raw))
    return [text.decode() for text in deserialize_bytes_tensor(raw)]


class RecordedTriton(ScriptedTriton):
    """The server, in a thread of its own; a context manager."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        super().__init__(self._answered, configurations())
        self._tokenizer = tokenizer
        self._asked: list[str] = []
        self.untold: set[str] = set()  # texts of prompts that are left out of what it was asked
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> RecordedTriton:
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result()
        return self

    def __exit__(self, *_exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def asked(self) -> list[str]:
        """What it was asked since the last call, in an order that does not depend on that of arrival."""
        lines, self._asked = sorted(self._asked), []
        return [line for line in lines if not any(text in line for text in self.untold)]

    async def _answered(self, request: Any, context: Any) -> AsyncIterator[Any]:
        asked = Wanted(request, self._tokenizer)
        if asked.counts:
            self._asked.append(asked.line())
        if request.model_name in ENCODERS:
            yield encoded(asked)
            return
        try:
            for message in Answer(asked, self._tokenizer).responses():
                yield message
        except ScriptedError as error:
            word, _, value = str(error).partition(" ")
            if word == "error":
                yield service_pb2.ModelStreamInferResponse(error_message=value)
            elif word == "abort":
                status, _, text = value.partition(" ")
                await context.abort(grpc.StatusCode[status], text)


def encoded(asked: Wanted) -> Any:
    """The only response of an encoder; a text has as many tokens as letters."""
    tensor, length, numbers = ENCODERS[asked.model]
    texts = asked.inputs[tensor]
    items = [texts[at : at + length] for at in range(0, len(texts), length)]
    rows = [numbers(*item) for item in items]
    response = _Response(asked.outputs)
    response.floats("numbers", [len(rows), len(rows[0])], [number for row in rows for number in row])
    response.ints("token_count", [len(rows), 1], [sum(map(len, item)) for item in items])
    response.message.infer_response.parameters["triton_final_response"].bool_param = True
    return response.message


class Answer:
    """The responses to one request."""

    def __init__(self, asked: Wanted, tokenizer: tokenizers.Tokenizer) -> None:
        self._asked = asked
        self._tokenizer = tokenizer
        self._limit = asked.first("request_output_len", asked.first("max_tokens", 1))
        self._beams = asked.first("beam_width", 1)
        self._size = 1 if asked.first("streaming", asked.first("stream", True)) else 10_000
        self._said: list[int] = []
        self._cached = 0
        self._begun = False

    def responses(self) -> Iterator[Any]:
        """All of them.

        Raises:
            ScriptedError: the direction by which it fails.
        """
        turn, stops = self._turn(), self._asked.inputs.get("stop_words_list", [])
        words = [[token] for token in stops[: len(stops) // 2]]
        ends = frozenset({self._asked.first("end_id", -1)})
        answer = cut(turn, turn["ids"], Asked([], self._limit, ends, words))
        yield from (self._data(*step) for step in play(answer, answer.ids, bool, end_alone=True))

    def _turn(self) -> Turn:
        """What the prompt tells to say, as a script has it."""
        _, found, rest = self._asked.prompt.rpartition("say:")
        alternatives = (rest.partition("<|im_end|>")[0] if found else DEFAULT).split("||")
        text, *directions = re.split(r"<<(.*?)>>", alternatives[self._asked.seed % len(alternatives)])
        text += "".join(directions[1::2])
        turn: Turn = {"ids": self._tokenizer.encode(text, add_special_tokens=False).ids, "chunk": [self._size]}
        for direction in directions[::2]:
            word, _, value = direction.partition(" ")
            if word in ("error", "abort", "vanish"):
                turn |= {"fail_after": len(turn["ids"]), "error": direction}
            else:
                turn[word] = [int(value)] if word == "chunk" else value
        self._cached = int(turn.get("cached", 0))
        return turn

    def _data(self, ids: list[int], finish: str | None) -> Any:
        self._said += ids
        beams, count = self._beams, len(ids)
        response = _Response(self._asked.outputs)
        response.ints("output_ids", [1, beams, count], ids * beams)
        response.ints("sequence_length", [1, beams], [count] * beams)
        response.text("text_output", self._tokenizer.decode(ids))
        response.floats("output_log_probs", [1, beams, len(self._said)], self._log_probs() * beams)
        response.table("top_log_probs", count, self._asked.first("num_top_log_probs", 0))
        if not self._begun:
            self._begun = True
            self._put_prompt(response)
        response.ints("num_input_tokens", [1, 1], [len(self._asked.prompt)])
        response.ints("num_output_tokens", [1, 1], [len(ids)])
        if finish:
            response.text("finish_reason", finish)
            response.ints("num_cached_tokens", [1, 1], [self._cached])
            response.message.infer_response.parameters["triton_final_response"].bool_param = True
        return response.message

    def _log_probs(self) -> list[float]:
        """Of all tokens so far, for the engine's are cumulative; sums of eighths, which every machine writes alike."""
        return [-(place % 7 + 1) / 8 - self._asked.seed % 4 for place in range(len(self._said))]

    def _put_prompt(self, response: _Response) -> None:
        count = len(self._asked.inputs.get("input_ids", self._asked.prompt)) - 1
        response.floats("prompt_log_probs", [1, count], [-place / 4 for place in range(count)])
        response.ints("prompt_log_probs_ranks", [1, count], [place % 3 + 1 for place in range(count)])
        response.table("prompt_top_log_probs", count, self._asked.first("num_prompt_log_probs", 0))


class _Response:
    """A response with those outputs that are wanted."""

    def __init__(self, wanted: set[str]) -> None:
        self.message = service_pb2.ModelStreamInferResponse()
        self._wanted = wanted

    def ints(self, name: str, shape: list[int], values: list[int]) -> None:
        self._put(name, "INT32", shape, struct.pack(f"<{len(values)}i", *values))

    def floats(self, name: str, shape: list[int], values: list[float]) -> None:
        self._put(name, "FP32", shape, struct.pack(f"<{len(values)}f", *values))

    def text(self, name: str, text: str) -> None:
        self._put(name, "BYTES", [1, 1], struct.pack("<I", len(text.encode())) + text.encode())

    def table(self, name: str, rows: int, width: int) -> None:
        """Alternatives: the best is ``!``, the next ones follow it in the vocabulary."""
        if width:
            self.ints(f"{name}_ids", [1, rows, width], [*range(width)] * rows)
            self.floats(name, [1, rows, width], [-(place + 1) / 4 for place in range(width)] * rows)

    def _put(self, name: str, datatype: str, shape: list[int], raw: bytes) -> None:
        if name in self._wanted:
            self.message.infer_response.outputs.add(name=name, datatype=datatype, shape=shape)
            self.message.infer_response.raw_output_contents.append(raw)
