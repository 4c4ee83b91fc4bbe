"""Embeddings, rerank, scores, classification and pooling."""

from __future__ import annotations

from tests.recorded.exchange import CHAT, Case, post, user

EMBEDDINGS = "/v1/embeddings"
DOCUMENTS = ["here", {"text": "there"}, "where"]

ENCODERS: list[Case] = [
    post("vectors", EMBEDDINGS, model="vectors", input=["Hello", "there", "you"]),
    post("vectors in base64, cut", EMBEDDINGS, model="vectors", input="Hello", encoding_format="base64", dimensions=2),
    post("token ids of an unknown vocabulary", EMBEDDINGS, model="vectors", input=[1, 2]),
    post("a text too long", EMBEDDINGS, model="vectors", input=["Hello", "x" * 65], colour="red"),
    post("vectors of a model that generates", EMBEDDINGS, model="chat", input="Hello"),
    post("documents", "/v1/rerank", model="ranks", query="the", documents=DOCUMENTS, top_n=2),
    post("documents in Cohere's form", "/v2/rerank", model="ranks", query="the", documents=DOCUMENTS),
    post("scores", "/score", model="ranks", queries="the", documents=["here", "x"]),
    post("classes", "/classify", model="classes", input=["eee", "Hello"]),
    post("pooling", "/pooling", model="vectors", input="Hello"),
    Case("an encoder", "/v1/models/vectors", method="GET"),
    post("a chat with an encoder", CHAT, model="vectors", messages=user("Hello")),
]
