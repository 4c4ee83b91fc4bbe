"""``/v1/responses``: a Responses request is continued as the chat request that it is translated into."""
