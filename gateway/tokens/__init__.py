"""Tokenizer, exact token bytes and incremental detokenisation. Pure: reads the tokenizer folder once.

A folder without tokenizer.json is converted in a process of its own.
"""

from gateway.tokens.conversion import VOCABULARY_FILES, unreadable
from gateway.tokens.detokenizer import IncrementalDetokenizer
from gateway.tokens.folder import TokenizerError
from gateway.tokens.tokenizer import Tokenizer, word_sequences

__all__ = ["VOCABULARY_FILES", "IncrementalDetokenizer", "Tokenizer", "TokenizerError", "unreadable", "word_sequences"]
