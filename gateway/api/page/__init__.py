"""The chat page and the API page."""
