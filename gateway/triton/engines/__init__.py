"""The ways to ask a Triton for tokens; each is an Engine."""
