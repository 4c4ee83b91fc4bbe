"""``gateway check URL --conformance``: what is true of a server of OpenAI's API, shown by its own responses."""
