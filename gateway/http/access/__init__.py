"""Access control: keys with names, tokens of an identity provider, and limits of callers."""
