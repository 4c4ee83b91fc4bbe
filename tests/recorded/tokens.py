"""Tokens, rendered requests and models."""

from __future__ import annotations

from tests.recorded.completions import IDS
from tests.recorded.engine import PLAIN_TEMPLATE
from tests.recorded.exchange import Case, post, user
from tests.recorded.forms import CITY, TOOLS, schema
from tests.recorded.gateways import KEY

RENDER = "/v1/chat/completions/render"

TOKENS: list[Case] = [
    post("tokenize text", "/tokenize", model="chat", prompt="Hü<|im_end|>"),
    post("tokenize text with its spellings", "/tokenize", model="chat", prompt="Hü", return_token_strs=True),
    post("tokenize text without special tokens", "/tokenize", model="chat", prompt="Hi", add_special_tokens=False),
    post("tokenize a chat", "/tokenize", model="chat", messages=user("Hi")),
    post("tokenize a chat with tools", "/tokenize", model="chat", messages=user("Hi"), tools=TOOLS[:1]),
    post("tokenize a chat to be continued", "/tokenize", model="chat", continue_final_message=True,
         messages=[*user("Hi"), {"role": "assistant", "content": "He"}]),
    post("tokenize a chat with variables", "/tokenize", model="chat", messages=user("Hi"),
         chat_template_kwargs={"style": "dry"}),
    post("tokenize both", "/tokenize", model="chat", prompt="Hi", messages=user("Hi")),
    post("tokenize nothing", "/tokenize", model="chat"),
    post("tokenize without a model of several", "/tokenize", prompt="Hi"),
    post("tokenize a number", "/tokenize", model="chat", prompt=5),
    post("tokenize with unknown fields", "/tokenize", model="chat", prompt="Hi", colour="red"),
    post("tokenize for a model that is away", "/tokenize", model="away", prompt="Hi"),
    post("tokenize for no such model", "/tokenize", model="nothing", prompt="Hi"),
    post("detokenize", "/detokenize", model="chat", tokens=IDS),
    post("detokenize control tokens", "/detokenize", model="chat", tokens=[39, 256, 257, 258]),
    post("detokenize nothing", "/detokenize", model="chat", tokens=[]),
    post("detokenize text", "/detokenize", model="chat", tokens="Hi"),
    post("detokenize what is outside the vocabulary", "/detokenize", model="chat", tokens=[100000]),
    post("detokenize negative ids", "/detokenize", model="chat", tokens=[-1]),
    post("detokenize without ids", "/detokenize", model="chat"),
    Case("tokenizer", "/tokenizer_info?model=chat", method="GET"),
    Case("tokenizer of a model without tools", "/tokenizer_info?model=bare", method="GET"),
    Case("tokenizer without a model of several", "/tokenizer_info", method="GET"),
    Case("tokenizer of the only model", "/tokenizer_info", method="GET", guarded=True,
         headers={"authorization": f"Bearer {KEY}"}),
    post("render", RENDER, model="chat", messages=user("Hi"), seed=1),
    post("render all of it", RENDER, model="chat", messages=user("Hi"), seed=2, max_tokens=5, temperature=0.5,
         stop=["x"], logit_bias={"1": 1}, bad_words=["bad"], n=2, logprobs=True, top_logprobs=2, min_tokens=1),
    post("render a form", RENDER, model="chat", messages=user("Hi"), seed=3, response_format=schema(CITY)),
    post("render tools", RENDER, model="chat", messages=user("Hi"), seed=4, tools=TOOLS, tool_choice="required"),
    post("render reasoning", RENDER, model="reasoner", messages=user("Hi"), seed=5, reasoning_effort="low"),
    post("render through the ensemble", RENDER, model="words", messages=user("Hi"), seed=6),
    post("render with ignored fields", RENDER, model="chat", messages=user("Hi"), seed=7, colour="red"),
    post("render what is wrong", RENDER, model="chat", messages=[]),
    post("render for no such model", RENDER, model="nothing", messages=user("Hi")),
    post("tokenize by a template where none may be", "/tokenize", model="chat", messages=user("Hi"),
         chat_template=PLAIN_TEMPLATE),
    Case("models", "/v1/models", method="GET"),
    *(Case(f"model {name}", f"/v1/models/{name}", method="GET")
      for name in ("chat", "reasoner", "text", "bare", "away")),
    Case("no such model", "/v1/models/nothing", method="GET"),
    Case("a model with a slash behind it", "/v1/models/chat/", method="GET"),
    Case("a model with a slash within", "/v1/models/a/b", method="GET"),
]  # fmt: skip
