"""A conversation with any server of OpenAI's API, for ``gateway chat`` and ``gateway models``."""
