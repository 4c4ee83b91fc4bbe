"""The request of ``/v1/rerank`` and ``/v2/rerank``: the fields of Jina and Cohere, with extensions of vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from gateway.api.openai.encoder_fields import PairFields, Text
from gateway.api.openai.validation import BRANCH, RequestPart
from gateway.text.tokens.encoder_tokenizer import EncoderInput


class RerankDocument(RequestPart):
    """A document as an object; only its text is read."""

    text: Text


def _branch(value: Any) -> str | None:
    return BRANCH + ("text" if isinstance(value, str) else "object") if isinstance(value, str | dict) else None


_Document = Annotated[
    Annotated[Text, Tag(BRANCH + "text")] | Annotated[RerankDocument, Tag(BRANCH + "object")],
    Discriminator(_branch, custom_error_type="choice", custom_error_message="must be a text or an object with a text"),
]


class RerankRequest(PairFields):
    """A query, and documents to be ordered by their relevance for it."""

    query: Text
    documents: Annotated[list[_Document], Field(min_length=1, fail_fast=True)]
    top_n: Annotated[int | None, Field(ge=0)] = None
    return_documents: bool | None = None

    def texts(self) -> Sequence[str]:
        """The texts of the documents."""
        return [each if isinstance(each, str) else each.text for each in self.documents]

    def inputs(self) -> Sequence[EncoderInput]:
        """The query with each document; see ``EncoderFields``."""
        return [EncoderInput(self.query, text) for text in self.texts()]

    def path(self, index: int, *, of_query: bool = False) -> str:
        """The path of a document, or of the query; see ``EncoderFields``."""
        return "query" if of_query else f"documents[{index}]"
