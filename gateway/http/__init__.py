"""Pure-ASGI middleware, one concern each, and the Server-Sent Events response. Knows nothing of models or engines."""
