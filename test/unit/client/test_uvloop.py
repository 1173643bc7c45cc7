"""Both transports on the event loop of the manager."""

import asyncio

import pytest
import uvloop

from jobsetpy.client import HttpRequest
from jobsetpy.errors import StreamBrokenError
from support import patience

GET = HttpRequest(method="GET", path="/x", timeout_s=patience.scaled(20))


@pytest.mark.parametrize("tls", [False, True])
def test_transports_run_on_uvloop(tls, http_server, transport_to, certificates):
    """Requests, streams and broken answers work as on asyncio's own loop."""

    async def handler(exchange):
        if exchange.request.target == "/cut":
            exchange.cut()
        else:
            await exchange.head()
            await exchange.chunk(b"one\n")
            await exchange.chunk(b"")

    async def main():
        http_server.handler = handler
        context = certificates.server_context() if tls else None
        async with http_server.running(context=context):
            transport = transport_to(http_server.url, ca=certificates.ca if tls else None)
            for _ in range(3):
                assert (await transport.request(GET)).body == b"one\n"
            async with transport.stream(GET) as stream:
                assert await stream.read() == b"one\n"
            with pytest.raises(StreamBrokenError):
                await transport.request(HttpRequest(method="POST", path="/cut", body=b"{}"))
            await transport.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

    assert http_server.connections == 2


@pytest.mark.parametrize("tls", [False, True])
def test_uvloop_gets_no_python_socket(tls, http_server, transport_to, certificates):
    """uvloop may close such a socket twice, the second time in the place of another connection."""
    given = []

    class Loop(uvloop.Loop):
        async def create_connection(self, *args, sock=None, **options):
            given.append(sock)
            return await super().create_connection(*args, sock=sock, **options)

    async def main():
        context = certificates.server_context() if tls else None
        async with http_server.running(context=context):
            transport = transport_to(http_server.url, ca=certificates.ca if tls else None)
            await transport.request(GET)
            await transport.aclose()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())

    assert given == [None]
