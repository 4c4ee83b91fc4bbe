"""The tokenizer, exact token bytes and incremental detokenization. Pure: reads the tokenizer folder once.

A folder without tokenizer.json is converted in another process.
"""

from gateway.text.tokens.conversion import VOCABULARY_FILES, unreadable
from gateway.text.tokens.detokenizer import IncrementalDetokenizer
from gateway.text.tokens.folder import TokenizerError
from gateway.text.tokens.tokenizer import Tokenizer, word_sequences

__all__ = ["VOCABULARY_FILES", "IncrementalDetokenizer", "Tokenizer", "TokenizerError", "unreadable", "word_sequences"]
