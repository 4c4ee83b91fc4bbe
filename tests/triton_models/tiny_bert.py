"""Tiny BERT models from a seed, and what they compute by an implementation that shares no code with theirs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

HIDDEN, LAYERS, HEADS, FFN, POSITIONS = 32, 2, 4, 64, 48
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyzäöü0123456789?.,"
_VOCABULARY = (*_SPECIAL, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), "the", "##ing", "##er", "what", "is")


def write_tiny_bert(folder: Path, *, labels: tuple[str, ...] = (), dtype: Any = np.float32, **config: Any) -> Path:
    """Write an encoder, or with labels a cross-encoder; the same arguments give the same bytes.

    Args:
        folder: created where it is missing.
        labels: of a cross-encoder's classifier.
        dtype: of the stored weights.
        config: further or other entries of ``config.json``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _tokenizer().save(str(folder / "tokenizer.json"))
    written = {
        "architectures": ["BertForSequenceClassification" if labels else "BertModel"], "hidden_act": "gelu",
        "hidden_size": HIDDEN, "intermediate_size": FFN, "layer_norm_eps": 1e-12, "max_position_embeddings": POSITIONS,
        "model_type": "bert", "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
        "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": len(_VOCABULARY),
    }  # fmt: skip
    written |= {"id2label": dict(enumerate(labels))} if labels else {}
    (folder / "config.json").write_text(json.dumps(written | config))
    weights = {name: array.astype(dtype) for name, array in _weights(len(labels)).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _tokenizer() -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(_VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    pair = "[CLS] $A [SEP] $B:1 [SEP]:1"
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair=pair, special_tokens=special)
    tokenizer.enable_truncation(8)  # as all-MiniLM-L6-v2 has it: not what the model reads at most
    tokenizer.enable_padding(length=8)
    return tokenizer


def _weights(labels: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(labels)
    prefix = "bert." if labels else ""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings": (len(_VOCABULARY), HIDDEN),
        "embeddings.position_embeddings": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings": (2, HIDDEN),
        "embeddings.LayerNorm": (HIDDEN,),
        "pooler.dense": (HIDDEN, HIDDEN),
    }
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        shapes |= {f"{name}.attention.self.{part}": (HIDDEN, HIDDEN) for part in ("query", "key", "value")}
        shapes |= {f"{name}.attention.output.dense": (HIDDEN, HIDDEN), f"{name}.intermediate.dense": (FFN, HIDDEN)}
        shapes |= {f"{name}.attention.output.LayerNorm": (HIDDEN,), f"{name}.output.LayerNorm": (HIDDEN,)}
        shapes[f"{name}.output.dense"] = (HIDDEN, FFN)
    made: dict[str, NDArray[np.float64]] = {}
    for name, shape in shapes.items():
        is_norm = name.endswith("LayerNorm")
        made[f"{prefix}{name}.weight"] = rng.standard_normal(shape) * (
            0.2 if is_norm else 3 / shape[-1] ** 0.5
        ) + float(is_norm)
        if not name.endswith("_embeddings"):
            made[f"{prefix}{name}.bias"] = rng.standard_normal(shape[0]) * 0.2
    if labels:
        made["classifier.weight"] = rng.standard_normal((labels, HIDDEN)) * 0.2
        made["classifier.bias"] = rng.standard_normal(labels)
    return {name: array.astype(np.float32) for name, array in made.items()}


class Reference:
    """BERT in float64 as its paper has it, one text at a time, token by token and head by head."""

    def __init__(self, folder: Path) -> None:
        self._config = json.loads((folder / "config.json").read_text())
        stored = load_file(folder / "model.safetensors")
        self._stored = {name.removeprefix("bert."): array.astype(np.float64) for name, array in stored.items()}

    def hidden(self, ids: list[int], types: list[int]) -> NDArray[np.float64]:
        """The last hidden states, [tokens, hidden]."""
        table = {
            name: self._stored[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
        }
        rows = [
            table["word"][token] + table["position"][place] + table["token_type"][kind]
            for place, (token, kind) in enumerate(zip(ids, types, strict=True))
        ]
        states = self._norm("embeddings.LayerNorm", np.stack(rows))
        for number in range(self._config["num_hidden_layers"]):
            name = f"encoder.layer.{number}"
            mixed = self._linear(f"{name}.attention.output.dense", self._attention(f"{name}.attention.self", states))
            states = self._norm(f"{name}.attention.output.LayerNorm", states + mixed)
            wide = self._linear(f"{name}.intermediate.dense", states)
            wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
            states = self._norm(f"{name}.output.LayerNorm", states + self._linear(f"{name}.output.dense", wide))
        return states

    def vector(self, ids: list[int], types: list[int]) -> NDArray[np.float64]:
        """The mean of the hidden states, of length 1."""
        mean = self.hidden(ids, types).mean(axis=0)
        found: NDArray[np.float64] = mean / math.sqrt((mean**2).sum())
        return found

    def logits(self, ids: list[int], types: list[int]) -> NDArray[np.float64]:
        """The classifier's output, [labels]."""
        pooled = np.tanh(self._linear("pooler.dense", self.hidden(ids, types)[:1]))
        return self._linear("classifier", pooled).reshape(-1)

    def _linear(self, name: str, states: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = states @ self._stored[f"{name}.weight"].T + self._stored[f"{name}.bias"]
        return found

    def _norm(self, name: str, states: NDArray[np.float64]) -> NDArray[np.float64]:
        spread = np.sqrt(states.var(axis=1, keepdims=True) + self._config["layer_norm_eps"])
        scaled = (states - states.mean(axis=1, keepdims=True)) / spread
        found: NDArray[np.float64] = scaled * self._stored[f"{name}.weight"] + self._stored[f"{name}.bias"]
        return found

    def _attention(self, name: str, states: NDArray[np.float64]) -> NDArray[np.float64]:
        heads = self._config["num_attention_heads"]
        size = states.shape[1] // heads
        query, key, value = (self._linear(f"{name}.{part}", states) for part in ("query", "key", "value"))
        mixed = np.zeros_like(states)
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            for token in range(len(states)):
                weights = np.exp(key[:, part] @ query[token, part] / math.sqrt(size))
                mixed[token, part] = weights @ value[:, part] / weights.sum()
        return mixed
