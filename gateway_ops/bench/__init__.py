"""The load generator of ``gateway bench``, which measures any server of OpenAI's API as its clients see it."""
