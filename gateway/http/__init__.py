"""The HTTP server, its pure-ASGI middleware, access control and Server-Sent Events.

Models and engines are unknown here.
"""
