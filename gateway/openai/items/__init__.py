"""Items of responses and conversations as they are kept and listed."""
