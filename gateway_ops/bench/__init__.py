"""The load generator of ``gateway bench``: it measures what clients of any server with OpenAI's API would notice."""
