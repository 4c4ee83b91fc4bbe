"""The work of ``gateway chat`` and ``gateway models``: conversations with any server of OpenAI's API."""
