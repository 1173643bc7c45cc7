"""HTTP/2 of the extender: requests, answers, and limits that protect it from clients."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from jobsetpy.coscheduler.extender.http2 import (
    HEADERS_LIMIT,
    Bounds,
    Cancelled,
    Http2Error,
    Refused,
    Request,
    Session,
)
from support.coscheduling.http2_client import Http2Client

BOUNDS = Bounds(
    streams=100, bodies={"/bind": 100, "/long": 300_000}, unread=400_000, body_s=10, spare=50
)


class Pair:
    """A client and a session, connected in memory."""

    def __init__(self, bounds=BOUNDS):
        self.now = 0.0
        self.session = Session(bounds, self.now)
        self.client = Http2Client()
        self.exchange()

    def exchange(self):
        """Deliver all data in both directions; return the session's events."""
        happened = []
        while True:
            there, back = self.client.http.data_to_send(), self.session.to_send()
            if not there and not back:
                return happened
            happened += self.session.receive(there, self.now) if there else []
            self.client.take(back)

    def ask(self, *args, **kwargs):
        """Begin a request; return its stream and the session's events."""
        stream = self.client.ask(*args, **kwargs)
        return stream, self.exchange()

    def answer(self, stream, status=200, content=b"{}"):
        """Answer a request; return the client's reply."""
        self.session.answer(stream, status, content)
        self.exchange()
        return self.client.replies[stream]


@pytest.fixture
def pair():
    """A client and a session with the usual bounds."""
    return Pair()


def test_requests_are_answered_in_any_order(pair):
    """All requests share one connection."""
    streams = [pair.client.ask("/bind", b"%d" % at) for at in range(90)]
    assert pair.exchange() == [
        Request(stream, "/bind", b"%d" % at) for at, stream in enumerate(streams)
    ]
    assert pair.session.open == 90
    for stream in reversed(streams):
        reply = pair.answer(stream, content=b"to %d" % stream)
        assert (reply.status, reply.body, reply.done) == (200, b"to %d" % stream, True)
    assert pair.session.open == 0


def test_long_bodies_and_answers_are_transferred_in_parts(pair):
    """The flow control windows of both sides are respected."""
    stream = pair.client.ask("/long", end=False)
    body = b"x" * 299_999
    sent, happened = 0, []
    while sent < len(body):
        room = min(pair.client.http.local_flow_control_window(stream), 16384)
        part = body[sent : sent + room]
        assert part
        pair.client.http.send_data(stream, part, end_stream=sent + len(part) == len(body))
        sent += len(part)
        happened += pair.exchange()
    assert happened == [Request(stream, "/long", body)]
    reply = pair.answer(stream, content=b"y" * 1_000_000)
    assert (reply.done, len(reply.body)) == (True, 1_000_000)


@pytest.mark.parametrize(
    ("path", "given", "status"),
    [
        ("/elsewhere", {}, 404),
        ("/bind", {"method": "GET"}, 405),
        ("/bind", {"body": b"x" * 101}, 413),
        ("/bind", {"extra": [("content-length", "101")], "end": False}, 413),
        ("/bind", {"body": b"x" * 101, "end": False}, 413),
    ],
)
def test_invalid_requests_are_refused_immediately(pair, path, given, status):
    """The rest of their body is not waited for, and other requests continue."""
    stream, happened = pair.ask(path, **given)
    assert happened == [Refused(stream, path, status)]
    reply = pair.answer(stream, status, b"no")
    assert (reply.status, reply.body, reply.done) == (status, b"no", True)
    assert pair.session.open == 0
    stream, happened = pair.ask("/bind", b"ok")
    assert happened == [Request(stream, "/bind", b"ok")]


def test_the_sum_of_all_bodies_is_bounded():
    """The limit counts the bodies of all open requests."""
    pair = Pair(Bounds(streams=9, bodies={"/bind": 100}, unread=250, body_s=10, spare=50))
    streams = [pair.client.ask("/bind", b"x" * 90, end=False) for _ in range(4)]
    assert pair.exchange() == [Refused(stream, "/bind", 413) for stream in streams[2:]]
    for stream in streams[2:]:
        assert pair.answer(stream, 413).status == 413
    pair.client.http.send_data(streams[0], b"", end_stream=True)
    assert pair.exchange() == [Request(streams[0], "/bind", b"x" * 90)]


def test_a_request_is_refused_when_its_body_is_late(pair):
    """A part of the body does not extend the time."""
    stream, happened = pair.ask("/bind", b"{", end=False)
    assert happened == []
    assert pair.session.late(9.9) == []
    pair.client.http.send_data(stream, b"}")
    pair.exchange()
    assert pair.session.late(10.0) == [Refused(stream, "/bind", 408)]
    assert pair.answer(stream, 408).status == 408
    assert pair.session.late(99.0) == []


def test_a_cancelled_request_is_reported_once(pair):
    """It is not answered; an incomplete request that is cancelled is not reported."""
    stream, _ = pair.ask("/bind", b"{}")
    pair.client.http.reset_stream(stream, ErrorCodes.CANCEL)
    assert pair.exchange() == [Cancelled(stream)]
    pair.session.answer(stream, 200, b"{}")
    assert pair.session.to_send() == b""
    half, _ = pair.ask("/bind", b"{", end=False)
    pair.client.http.reset_stream(half, ErrorCodes.CANCEL)
    assert pair.exchange() == []
    assert pair.session.open == 0


def test_the_rate_of_resets_and_pings_is_bounded():
    """A client that quickly begins and cancels requests gets GOAWAY; a slow one does not."""
    patient = Pair()
    for _ in range(200):
        stream, _ = patient.ask("/bind", b"{}")
        patient.client.http.reset_stream(stream)
        patient.exchange()
        patient.now += 0.1
    for what in ("reset", "ping"):
        pair = Pair()
        with pytest.raises(Http2Error, match="too many"):
            for _ in range(100):
                if what == "reset":
                    stream, _ = pair.ask("/bind", b"{}")
                    pair.client.http.reset_stream(stream)
                else:
                    pair.client.http.ping(b"12345678")
                pair.exchange()
        pair.client.take(pair.session.to_send())
        assert pair.client.sent_away


def test_the_connection_ends_when_a_client_opens_too_many_streams(pair):
    """The limit is announced, so that a correct client opens another connection."""
    assert pair.client.http.remote_settings.max_concurrent_streams == 100
    pair.client.http.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 1000
    pair.client.http.remote_settings.acknowledge()
    for _ in range(100):
        pair.ask("/bind", b"{}")
    with pytest.raises(Http2Error):
        pair.ask("/bind", b"{}")


def test_long_headers_end_the_connection(pair):
    """They are not stored."""
    pair.client.ask("/bind", extra=[(f"x-{at}", "x" * 1000) for at in range(HEADERS_LIMIT // 1000)])
    with pytest.raises(Http2Error):
        pair.exchange()


def test_open_requests_continue_after_goaway(pair):
    """Requests that crossed the GOAWAY are refused, and may be sent on another connection."""
    held, _ = pair.ask("/bind", b"{}")
    late = pair.client.ask("/bind", b"{}")
    crossed = pair.client.http.data_to_send()
    pair.session.leave()
    pair.session.leave()
    assert pair.session.receive(crossed, pair.now) == []
    pair.session.answer(held, 200, b"{}")
    sent = pair.session.to_send()
    # Frames: answers, a refused stream, one GOAWAY with the last stream that is answered.
    goaway = sent.index(b"\x00\x00\x08\x07\x00")
    assert int.from_bytes(sent[goaway + 9 : goaway + 13]) == held
    assert sent.count(b"\x00\x00\x08\x07\x00") == 1
    refused = (
        b"\x00\x00\x04\x03\x00" + late.to_bytes(4) + int(ErrorCodes.REFUSED_STREAM).to_bytes(4)
    )
    assert refused in sent
    assert pair.session.open == 0


@settings(max_examples=150)
@given(st.data())
def test_invalid_data_only_ends_the_connection(data):
    """Requests are complete, cut short, or have inserted bytes."""
    client = Http2Client()
    for _ in range(data.draw(st.integers(0, 4))):
        client.ask(
            data.draw(st.sampled_from(["/bind", "/long", "/x"])), data.draw(st.binary(max_size=120))
        )
    stream = bytearray(client.http.data_to_send())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(stream)))
        stream[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=20))
    session = Session(BOUNDS, 0.0)
    size = data.draw(st.integers(1, 400))
    try:
        for at in range(0, len(stream), size):
            for each in session.receive(bytes(stream[at : at + size]), 0.0):
                if isinstance(each, Request | Refused):
                    session.answer(each.stream, 200, b"{}")
            session.to_send()
    except Http2Error:
        assert session.to_send() is not None
