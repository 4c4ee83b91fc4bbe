"""Several endpoints for one served model: which of them takes a request, and what is tried where one fails."""
