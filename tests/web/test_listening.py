"""Sockets to listen on."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from gateway.http.listening import listen, with_duplicates

CLIENTS = 16


class Accepted(asyncio.Protocol):
    def __init__(self, made: list[int], turn: list[int]) -> None:
        self._made, self._turn = made, turn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(self._turn[0])
        transport.close()


async def turns_of(sockets: list[socket.socket]) -> list[int]:
    """In which turns of the loop clients are taken that all come at once."""
    loop = asyncio.get_running_loop()
    made: list[int] = []
    turn = [0]
    servers = [await loop.create_server(lambda: Accepted(made, turn), sock=each) for each in sockets]
    clients = [socket.create_connection(sockets[0].getsockname()) for _ in range(CLIENTS)]
    while len(made) < CLIENTS:
        turn[0] += 1
        await asyncio.sleep(0)
    for client in clients:
        client.close()
    for server in servers:
        server.close()
    return made


def test_clients_that_come_together_are_taken_together() -> None:
    made = uvloop.run(turns_of(with_duplicates(listen("127.0.0.1", 0, 1)[0])))
    assert max(map(made.count, made)) == 8
    assert max(made) - min(made) == 1


def test_the_port_is_free_when_all_are_closed() -> None:
    sockets = with_duplicates(listen("127.0.0.1", 0, 1)[0])
    address = sockets[0].getsockname()
    assert {each.getsockname() for each in sockets} == {address}
    for each in sockets:
        each.close()
    with socket.create_server(address):
        pass


def test_an_empty_host_is_every_interface() -> None:
    sockets = listen("", 0, 1)[0]
    assert {each.getsockname()[0] for each in sockets} <= {"0.0.0.0", "::"}
    assert len({each.getsockname()[1] for each in sockets}) == 1
    for each in sockets:
        each.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_where_it_cannot_listen_is_said(workers: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=r"^Cannot listen on 127.0.0.1 ") as raised:
            listen("127.0.0.1", port, workers)
        assert str(raised.value) == (
            f"Cannot listen on 127.0.0.1 port {port} (Address already in use). Set another port with GATEWAY_PORT or "
            "server.port."
        )
    with pytest.raises(OSError, match=r"^Cannot listen on a\.\.b port 1 "):  # no name, so nobody is asked for it
        listen("a..b", 1, workers)
