"""HTTP server that begins to use another TLS context while clients connect."""

import asyncio
import socket
import ssl
from datetime import UTC, datetime

import pytest

from jobsetpy.serving import x509
from jobsetpy.serving.http import Route, listening, text
from jobsetpy.serving.tls import TlsMaterial, TlsPolicy
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


class Client:
    """TLS client whose handshake can be stopped in the middle."""

    def __init__(self, authority):
        context = ssl.create_default_context(cadata=authority.certificate.decode())
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def begin(self, port):
        """Connect; return when the server has answered the first message."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.do_handshake()
        await self._exchange()

    async def _exchange(self):
        self._writer.write(self._outgoing.read())
        async with patience.timeout(10):
            received = await self._reader.read(2**16)
        assert received, "the server closed the connection"
        self._incoming.write(received)

    async def finish(self):
        """Complete the handshake."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._exchange()
            else:
                self._writer.write(self._outgoing.read())
                return

    async def get(self):
        """Send a request; return the answer."""
        self._tls.write(b"GET /ok HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self._writer.write(self._outgoing.read())
        answer = b""
        while not answer.endswith(b"ok"):
            try:
                answer += self._tls.read()
            except ssl.SSLWantReadError:
                await self._exchange()
        return answer

    def close(self):
        self._writer.close()


@pytest.fixture(scope="module")
def authority():
    return x509.new_authority(datetime.now(UTC))


@pytest.fixture
def context(authority):
    """Function that makes a TLS context of the server, as each change of its certificate does."""
    pair = x509.new_serving(authority, ["localhost"], datetime.now(UTC), elliptic=True)
    return lambda: TlsPolicy().new_context(TlsMaterial(pair))


async def test_connection_is_closed_after_its_next_response_when_the_context_changes(
    authority, context
):
    """A client that the new context refuses cannot use its connection for ever."""
    async with listening([Route("GET", "/ok", ok)], LOOPBACK) as server:
        await server.use(context())
        client = Client(authority)
        await client.begin(server.port)
        await client.finish()
        before = await client.get()
        await server.use(context())
        after = await client.get()
        client.close()

    assert b"Connection: close" not in before
    assert b"Connection: close" in after
