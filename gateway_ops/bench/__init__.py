"""A load on a running deployment over HTTP, and what its clients would notice; any server with OpenAI's API will do."""
