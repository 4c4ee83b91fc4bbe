"""Answers of two servers in one form, the verdict on them, and the report: of ``gateway compare`` and of mirrors."""
