"""The endpoint ``/v1/responses``: a Responses request is translated to a chat request."""
