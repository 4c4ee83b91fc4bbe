"""Several endpoints of one served model: the choice for each request, and retries."""
