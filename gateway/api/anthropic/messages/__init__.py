"""``POST /v1/messages``: a request becomes a chat request, and its answer content blocks."""
