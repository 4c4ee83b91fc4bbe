"""The fast path of a streamed token, from the engine's response to the client's socket.

``docs/contributing/internals.md`` explains it. Nothing here knows HTTP requests, gRPC or the shape of a response. With
``server.relay: false`` each token takes the slow path, and clients get the same bytes.
"""
