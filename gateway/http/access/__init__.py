"""Callers and their rights: keys with names, tokens of an identity provider, limits."""
