"""``/openapi.json``: what each operation takes and answers, and the file that the gateway serves."""
