"""``/v1/conversations`` and their items."""
