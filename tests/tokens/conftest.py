"""What tests of tokenizers share."""

from tests.tokens.kept_helper import one_helper  # noqa: F401 - a fixture
