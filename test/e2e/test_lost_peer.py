"""Connections of the agent to an API server that vanishes silently, in network namespaces."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from jobsetpy.client._connection import PEER_TIMEOUT_S

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(
        shutil.which("ip") is None or os.getuid() != 0, reason="needs root and iproute2"
    ),
]

SERVER = """
import asyncio
async def main():
    async def answer(reader, writer):
        await reader.readuntil(b"\\r\\n\\r\\n")
        writer.write(b"HTTP/1.1 200 OK\\r\\ntransfer-encoding: chunked\\r\\n\\r\\n2\\r\\n{}\\r\\n")
        await asyncio.Event().wait()
    server = await asyncio.start_server(answer, "10.123.0.1", 8080)
    print("listening", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
CLIENT = """
import asyncio, time
from jobsetpy.client import HttpRequest, H11Transport
async def main():
    transport = H11Transport("http://10.123.0.1:8080")
    request = HttpRequest(method="GET", path="/watch", timeout_s=600)
    begin = 0.0
    try:
        async with transport.stream(request) as stream:
            while await stream.read():
                print("watching", flush=True)
                begin = time.monotonic()
    except Exception as error:
        print(type(error).__name__, time.monotonic() - begin, flush=True)
asyncio.run(main())
"""


@pytest.fixture
def names() -> Iterator[tuple[str, str]]:
    """Two network namespaces with a link between them."""
    server, client = (f"jobsetpy-{os.getpid()}-{side}" for side in "sc")

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)

    try:
        for name in (server, client):
            ip("netns", "add", name)
        ip("link", "add", "wire", "netns", server, "type", "veth", "peer", "wire", "netns", client)
        for number, name in enumerate((server, client), 1):
            ip("-n", name, "address", "add", f"10.123.0.{number}/24", "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")
        yield server, client
    finally:
        for name in (server, client):
            subprocess.run(["ip", "netns", "delete", name], check=False)


@pytest.mark.timeout(PEER_TIMEOUT_S * 6)
async def test_watch_ends_when_its_server_vanishes(names: tuple[str, str]) -> None:
    """A peer that drops packets is noticed within about half a minute, even on an idle watch."""
    pipe = asyncio.subprocess.PIPE
    processes = []
    try:
        for name, code, ready in zip(
            names, (SERVER, CLIENT), (b"listening\n", b"watching\n"), strict=True
        ):
            command = ("ip", "netns", "exec", name, sys.executable, "-c", code)
            processes.append(await asyncio.create_subprocess_exec(*command, stdout=pipe))
            assert processes[-1].stdout is not None
            assert await processes[-1].stdout.readline() == ready
        # What the server sends is dropped; the client's side of the link stays up.
        drop = ("ip", "-n", names[0], "route", "add", "blackhole", "10.123.0.2/32")
        assert await (await asyncio.create_subprocess_exec(*drop)).wait() == 0
        assert processes[1].stdout is not None
        error, after = (await processes[1].stdout.readline()).split()
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()

    assert error == b"StreamBrokenError"
    assert float(after) < PEER_TIMEOUT_S * 2
