"""Comparison of two servers for ``gateway compare`` and mirrors: answers in one form, verdicts and the report."""
