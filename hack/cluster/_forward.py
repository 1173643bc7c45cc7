"""Lets the machine reach the API server that is in a cluster's own network namespace.

A socket belongs to the namespace it was made in. The supervisor makes the listening one in the
machine's namespace (loopback only) before it leaves that; this process inherits it and connects
onwards in the cluster's. Inside, the same port is served as well: one kubeconfig for both.

    python -I -S _forward.py PORT TARGET_ADDRESS TARGET_PORT
"""

import asyncio
import contextlib
import socket
import sys

LISTEN_FD = 3


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, then pass the end on."""
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
            writer.transport.abort()  # the same as a refused connection, as near as can be
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, up_writer))
                group.create_task(pump(up_reader, writer))
        except* OSError:
            writer.transport.abort()  # one side is broken: so is the other
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
