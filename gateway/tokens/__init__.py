"""Tokenizer, exact token bytes and incremental detokenisation. Pure: reads the tokenizer folder once."""

from gateway.tokens.detokenizer import IncrementalDetokenizer
from gateway.tokens.errors import TokenizerError
from gateway.tokens.tokenizer import Tokenizer

__all__ = ["IncrementalDetokenizer", "Tokenizer", "TokenizerError"]
