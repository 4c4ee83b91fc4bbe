"""Tokens, rendered requests and models."""

from __future__ import annotations

from tests.recorded.engine import PLAIN_TEMPLATE
from tests.recorded.exchange import Case, post, user
from tests.recorded.gateways import KEY

RENDER = "/v1/chat/completions/render"

TOKENS: list[Case] = [
    post("tokenize text with its spellings", "/tokenize", model="chat", prompt="Hü", return_token_strs=True),
    post("tokenize text without special tokens", "/tokenize", model="chat", prompt="Hi", add_special_tokens=False),
    post("tokenize a chat with variables", "/tokenize", model="chat", messages=user("Hi"),
         chat_template_kwargs={"style": "dry"}),
    post("tokenize both", "/tokenize", model="chat", prompt="Hi", messages=user("Hi")),
    post("tokenize without a model of several", "/tokenize", prompt="Hi"),
    post("tokenize with unknown fields", "/tokenize", model="chat", prompt="Hi", colour="red"),
    post("tokenize for a model that is away", "/tokenize", model="away", prompt="Hi"),
    post("detokenize control tokens", "/detokenize", model="chat", tokens=[39, 256, 257, 258]),
    post("detokenize nothing", "/detokenize", model="chat", tokens=[]),
    post("detokenize what is outside the vocabulary", "/detokenize", model="chat", tokens=[100000]),
    Case("tokenizer of a model without tools", "/tokenizer_info?model=bare", method="GET"),
    Case("tokenizer of the only model", "/tokenizer_info", method="GET", guarded=True,
         headers={"authorization": f"Bearer {KEY}"}),
    post("render through the ensemble", RENDER, model="words", messages=user("Hi"), seed=6),
    post("render with ignored fields", RENDER, model="chat", messages=user("Hi"), seed=7, colour="red"),
    post("render what is wrong", RENDER, model="chat", messages=[]),
    post("tokenize by a template where none may be", "/tokenize", model="chat", messages=user("Hi"),
         chat_template=PLAIN_TEMPLATE),
    Case("models", "/v1/models", method="GET"),
    *(Case(f"model {name}", f"/v1/models/{name}", method="GET")
      for name in ("chat", "away")),
    Case("no such model", "/v1/models/nothing", method="GET"),
    Case("a model with a slash within", "/v1/models/a/b", method="GET"),
]  # fmt: skip
