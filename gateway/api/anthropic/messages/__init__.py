"""The endpoint ``POST /v1/messages``: translates a request to a chat request, and its answer to content blocks."""
