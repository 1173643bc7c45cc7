"""Forwarder from the machine to an API server in a cluster's own network namespace.

A socket belongs to the namespace in which it was created. The supervisor creates the listening
socket in the machine's namespace (loopback only) before it leaves that; this process inherits it
and connects to the API server in the cluster's namespace. It serves the same port there, so that
one kubeconfig works in both.

    python -I -S _forward.py PORT TARGET_ADDRESS TARGET_PORT
"""

import asyncio
import contextlib
import socket
import sys

LISTEN_FD = 3


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end of the stream, then forward the end."""
    while data := await reader.read(1 << 18):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def main(port: int, address: str, target: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection(address, target, limit=1 << 18)
        except OSError:
            writer.transport.abort()  # the closest equivalent of a refused connection
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, up_writer))
                group.create_task(pump(up_reader, writer))
        except* OSError:
            writer.transport.abort()  # forward the broken connection
        finally:
            up_writer.close()
            writer.close()

    outside = socket.socket(fileno=LISTEN_FD)
    servers = [
        await asyncio.start_server(serve, sock=outside, limit=1 << 18),
        await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 18),
    ]
    async with contextlib.AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(server)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
