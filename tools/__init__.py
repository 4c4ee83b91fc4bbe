"""Measures of the repository and writers of its generated pages. Not part of the wheel."""
