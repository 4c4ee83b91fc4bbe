"""Anthropic's API over the same served models: messages, token counts, the list of models, and errors."""
