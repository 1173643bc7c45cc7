"""HTTP server that begins to use another TLS context while clients connect."""

import asyncio
import socket

import pytest

from jobsetpy.serving.http import Route, listening, text
from support import patience

LOOPBACK = ("127.0.0.1", 0)


async def ok(_request):
    return text(200, "ok")


@pytest.mark.parametrize("turns", range(4))
async def test_connection_is_served_when_the_context_changes_while_it_is_accepted(turns):
    """A connection is answered, however many turns of the event loop before the change it arrives."""
    async with listening([Route("GET", "/ok", ok)], LOOPBACK) as server:
        await server.use(None)
        client = socket.create_connection(("127.0.0.1", server.port))
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.use(None)
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(b"GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with patience.timeout(10):
            status = await reader.readline()
        writer.close()

    assert status == b"HTTP/1.1 200 OK\r\n"
