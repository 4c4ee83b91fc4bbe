"""Types of the responses of embeddings, rerank, scores, classification and pooling."""

from __future__ import annotations

from typing import Literal

from typing_extensions import NotRequired, TypedDict


class EncoderUsage(TypedDict):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class Embedding(TypedDict):
    """The vector of an input: numbers, or little-endian float32 in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(TypedDict):
    """Vectors in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EncoderUsage


class RankedText(TypedDict):
    """The text of a document."""

    text: str


class RankedDocument(TypedDict):
    """A document by its place in the request."""

    index: int
    relevance_score: float
    document: NotRequired[RankedText]


class Ranking(TypedDict):
    """Documents, the most relevant first."""

    id: str
    results: list[RankedDocument]
    model: str
    usage: EncoderUsage


class CohereVersion(TypedDict):
    """The version of Cohere's API."""

    version: Literal["2"]


class CohereTokens(TypedDict):
    """Tokens of the query and the documents."""

    input_tokens: int


class CohereUnits(TypedDict):
    """Search units of a request: one for each 100 documents begun."""

    search_units: int


class CohereMeta(TypedDict):
    """Facts of a response in Cohere's form."""

    api_version: CohereVersion
    billed_units: CohereUnits
    tokens: CohereTokens


class CohereRanking(TypedDict):
    """Documents, the most relevant first, in Cohere's form."""

    id: str
    results: list[RankedDocument]
    meta: CohereMeta


class _Head(TypedDict):
    id: str
    object: Literal["list"]
    created: int
    model: str
    usage: EncoderUsage


class Score(TypedDict):
    """The score of a pair."""

    index: int
    object: Literal["score"]
    score: float


class ScoreList(_Head):
    """Scores in the order of the pairs."""

    data: list[Score]


class Classification(TypedDict):
    """The most probable class of an input, and the probabilities of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassificationList(_Head):
    """Classes in the order of the inputs."""

    data: list[Classification]


class Pooled(TypedDict):
    """The vector of an input, or its scores by class: numbers, or little-endian float32 in base64."""

    index: int
    object: Literal["pooling"]
    data: list[float] | str


class PooledList(_Head):
    """Pooled values in the order of the inputs."""

    data: list[Pooled]
