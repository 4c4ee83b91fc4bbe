"""Mirrors: copies of live requests to a second model, and a report on the comparison, in a process of its own.

A gateway process follows the requests of which a copy is wanted (``copies``), and hands each with its response to the
process of the copies (``link``), which asks the second model, compares (``receiver``) and is started again
when it ends (``keeper``). What it cannot take is dropped and counted: no client ever waits for it.
"""
