"""``gateway check URL --conformance``: what is true of a server that speaks OpenAI's API, shown by its own answers."""
