"""Tokenizer, exact token bytes and incremental detokenisation. Pure: reads the tokenizer folder once."""

from gateway.tokens.detokenizer import IncrementalDetokenizer
from gateway.tokens.folder import TokenizerError
from gateway.tokens.tokenizer import Tokenizer
from gateway.tokens.words import word_sequences

__all__ = ["IncrementalDetokenizer", "Tokenizer", "TokenizerError", "word_sequences"]
