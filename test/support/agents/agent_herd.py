"""A process with many agents: each is the sidecar's own ``Agent``, with its own connections.

It is started with the number of agents and the environment of one agent, but for ``POD_NAMES``. It
waits for a line on its standard input, starts all agents together, and writes a line when all have
lifted their barriers: for each agent its requests, the number of answers of an overloaded API server,
and the seconds until its barrier was lifted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from jobsetpy import aio
from jobsetpy.agent.protocol.follower import connect
from jobsetpy.agent.protocol.settings import load
from jobsetpy.agent.sidecar.sidecar import Agent
from jobsetpy.client import ByteStream, Client, HttpRequest, HttpResponse, Transport


class Counting:
    """A transport that counts requests."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.requests = 0
        self.refused = 0

    async def request(self, request: HttpRequest) -> HttpResponse:
        self.requests += 1
        answer = await self.transport.request(request)
        self.refused += answer.status == 429
        return answer

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[ByteStream]:
        self.requests += 1
        async with self.transport.stream(request) as stream:
            self.refused += stream.status == 429
            yield stream

    async def refresh_credentials(self) -> None:
        await self.transport.refresh_credentials()

    async def aclose(self) -> None:
        await self.transport.aclose()


class One:
    """One agent with its counters."""

    def __init__(self, pod: str) -> None:
        # No file is left behind, from which a later run would read its epoch.
        own = {"POD_NAME": pod, "ARRIVAL_FILE": "/nonexistent/arrival"}
        settings = load({**os.environ, **own})
        self.counting = Counting(connect(settings).transport)
        self.agent = Agent(settings, Client(self.counting), log=self.log)
        self.lifted = asyncio.Event()
        self.seconds = 0.0

    def log(self, event: str, /, *, level: str = "info", **_fields: object) -> None:
        if event == "barrier lifted":
            self.seconds = time.monotonic()
            self.lifted.set()
        elif level == "error":
            print(f"{event} {_fields}", file=sys.stderr, flush=True)

    async def run(self) -> None:
        code = await self.agent.run()
        raise SystemExit(f"an agent ended with {code}")


async def main() -> None:
    ready = [One(pod) for pod in os.environ["POD_NAMES"].split()]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began = time.monotonic()
    async with aio.supervise() as tasks:
        for one in ready:
            tasks.start(one.run(), name="agent")
        for one in ready:
            await one.lifted.wait()
        figures = [
            (one.counting.requests, one.counting.refused, one.seconds - began) for one in ready
        ]
        print(json.dumps(figures), flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main())
