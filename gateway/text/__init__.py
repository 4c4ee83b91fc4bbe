"""Conversations, prompts, families, guides and tokens: pure, and usable alone."""
