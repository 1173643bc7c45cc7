"""Deadlines of HTTP/2 clients, and causes that end their connection."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from jobsetpy import aio
from jobsetpy.coscheduler.extender.extender import ExtenderApi
from jobsetpy.coscheduler.extender.http2_connection import MAX_AGE_S, UNSENT, Http2Connections
from jobsetpy.serving.guard import IDLE_S
from support.coscheduling.http2_client import Http2Client

ARGS = json.dumps({"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n"}).encode()
SHORT_S = 30.0
MARGIN_S = 5.0

pytestmark = pytest.mark.looptime


class Wire(asyncio.Transport):
    """A transport that records data and its end; the client's certificate has no name."""

    def __init__(self):
        super().__init__({"peercert": {}})
        self.written = bytearray()
        self.unsent = 0
        self.end = ""

    def write(self, data):
        self.written += data

    def get_write_buffer_size(self):
        return self.unsent

    def is_closing(self):
        return bool(self.end)

    def close(self):
        self.end = self.end or "closed"

    def abort(self):
        self.end = self.end or "aborted"


class Extender:
    """An extender that answers after ``takes_s`` seconds, or fails."""

    def __init__(self):
        self.takes_s = 0.0
        self.fails = False

    async def bind(self, _):
        await asyncio.sleep(self.takes_s)
        if self.fails:
            raise RuntimeError("a mistake")
        return ""

    async def preempt(self, _, preemptor=None):
        raise NotImplementedError


class Line:
    """A client, its connection and the extender."""

    def __init__(self, tasks):
        self.extender = Extender()
        self.wire = Wire()
        self.client = Http2Client()
        self.connection = Http2Connections(
            ExtenderApi(lambda: self.extender), tasks, body_s=SHORT_S, headers_s=SHORT_S
        )()
        self.connection.connection_made(self.wire)

    async def ask(self, body=ARGS, *, end=True):
        """Begin a request, and send all pending data; return the answer so far."""
        stream = self.client.ask("/bind", body, end=end)
        return await self.exchange(stream)

    async def exchange(self, stream=1):
        """Exchange all pending data; return the answer so far."""
        self.connection.data_received(self.client.http.data_to_send())
        return await self.taken(stream)

    async def taken(self, stream=1):
        """Receive all pending data; return the answer so far."""
        await asyncio.sleep(0.1)
        self.client.take(bytes(self.wire.written))
        self.wire.written.clear()
        return self.client.replies.get(stream)


@asynccontextmanager
async def made():
    """A new connection."""
    async with aio.supervise() as tasks:
        line = Line(tasks)
        yield line
        line.connection.connection_lost(None)


async def test_a_connection_without_a_request_is_aborted():
    """The deadline is that of headers; other frames do not extend it."""
    async with made() as line:
        await line.exchange()
        await asyncio.sleep(SHORT_S - MARGIN_S)
        line.client.http.ping(b"12345678")
        await line.exchange()
        assert line.wire.end == ""
        await asyncio.sleep(2 * MARGIN_S)
        assert line.wire.end == "aborted"


async def test_an_idle_connection_is_closed():
    """It is kept for some time after each request, then closed with GOAWAY."""
    async with made() as line:
        for _ in range(2):
            await line.ask()
            await asyncio.sleep(IDLE_S - MARGIN_S)
            assert line.wire.end == ""
        await asyncio.sleep(2 * MARGIN_S)
        assert line.wire.end == "closed"
        await line.taken()
        assert line.client.sent_away


async def test_a_held_request_keeps_its_connection():
    """The connection is not idle, and stays open after the GOAWAY for its age."""
    async with made() as line:
        line.extender.takes_s = MAX_AGE_S + 100
        await line.ask()
        await asyncio.sleep(MAX_AGE_S + MARGIN_S)
        reply = await line.taken()
        assert (line.client.sent_away, reply.done, line.wire.end) == (True, False, "")
        await asyncio.sleep(100)
        assert (await line.taken()).body == b'{"Error":""}'
        assert line.wire.end == "closed"


async def test_a_connection_is_aborted_when_its_client_does_not_read():
    """Each pause is bounded."""
    async with made() as line:
        await line.ask()
        line.connection.pause_writing()
        await asyncio.sleep(SHORT_S - MARGIN_S)
        line.connection.resume_writing()
        await asyncio.sleep(SHORT_S - MARGIN_S)
        line.connection.pause_writing()
        await asyncio.sleep(SHORT_S - MARGIN_S)
        assert line.wire.end == ""
        await asyncio.sleep(2 * MARGIN_S)
        assert line.wire.end == "aborted"


async def test_a_connection_is_aborted_when_too_much_is_unsent():
    """Answers are buffered up to a limit."""
    async with made() as line:
        await line.ask()
        line.wire.unsent = UNSENT
        await line.ask()
        assert line.wire.end == ""
        line.wire.unsent += 1
        await line.ask()
        assert line.wire.end == "aborted"


async def test_an_unexpected_error_affects_one_request():
    """It is answered with 500, other requests continue, and then the connection is closed."""
    async with made() as line:
        line.extender.takes_s = 10.0
        await line.ask()
        line.extender.fails, line.extender.takes_s = True, 0.0
        assert (await line.ask()).status == 500
        line.extender.fails = False
        await asyncio.sleep(10.0)
        assert (await line.taken()).status == 200
        assert line.wire.end == "closed"


async def test_a_connection_is_closed_when_its_client_does_not_speak_http2():
    """Other protocols are not answered."""
    async with made() as line:
        line.connection.data_received(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n")
        assert line.wire.end == "closed"
