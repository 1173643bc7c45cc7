"""Splitting of a byte stream into watch frames."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.client import WatchStream, _frames
from jobsetpy.client._frames import LineSplitter
from jobsetpy.errors import DecodeError, StreamBrokenError

objects = st.dictionaries(st.text(max_size=5), st.text(max_size=300), max_size=4)
events = st.lists(st.tuples(st.sampled_from(["ADDED", "BOOKMARK", "ERROR"]), objects), max_size=8)


def encode(pairs):
    """Return a watch as a server sends it: UTF-8, one event on a line."""
    return b"".join(msgspec.json.encode({"type": t, "object": o}) + b"\n" for t, o in pairs)


def plain(frames):
    """Return frames as comparable values."""
    return [(frame.type, msgspec.json.decode(frame.object)) for frame in frames]


@given(events, st.data())
def test_any_split_gives_the_same_frames(pairs, data):
    """The network may cut the bytes anywhere, even within a character."""
    whole = encode(pairs)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=20)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    splitter = LineSplitter()
    found = [frame for piece in pieces for frame in splitter.feed(piece)]
    splitter.finish()

    assert pairs == plain(found)


def test_very_long_line_is_joined_once():
    """Megabytes in small pieces cost linear work."""
    text = "ü" * 3_000_000
    whole = encode([("ADDED", {"a": text})])
    splitter = LineSplitter()
    found = []
    for at in range(0, len(whole), 4096):
        found += splitter.feed(whole[at : at + 4096])

    assert plain(found) == [("ADDED", {"a": text})]


def test_carriage_returns_and_empty_lines_are_skipped():
    """Some proxies send empty lines to keep a connection alive."""
    splitter = LineSplitter()
    frames = splitter.feed(b'\n\r\n {"type":"ADDED","object":{}}\r\n\n')

    assert plain(frames) == [("ADDED", {})]


@pytest.mark.parametrize(
    "line", [b"no json\n", b'{"type":1,"object":{}}\n', b'{"type":"A"}\n', b"[]\n", b"\xff\n"]
)
def test_lines_without_an_event_are_decode_errors(line):
    """They are distinguished from a broken connection."""
    with pytest.raises(DecodeError):
        LineSplitter().feed(line)


def test_end_within_a_frame_is_not_clean():
    """The connection was cut."""
    splitter = LineSplitter()
    splitter.feed(b'{"type":"ADDED","obj')
    with pytest.raises(StreamBrokenError):
        splitter.finish()


def test_endless_line_breaks_the_stream(monkeypatch):
    """Memory is bounded with any server."""
    monkeypatch.setattr(_frames, "MAX_LINE", 1000)
    splitter = LineSplitter()
    splitter.feed(b"x" * 900)
    with pytest.raises(StreamBrokenError):
        splitter.feed(b"x" * 200)


async def test_read_returns_batches_and_then_the_end(scripted_stream):
    """One read returns all frames that arrived together; an empty list is the clean end."""
    a, b, c = (encode([("ADDED", {"n": n})]) for n in "abc")
    stream = WatchStream(scripted_stream(200, {}, [a[:5], a[5:] + b + c[:3], c[3:]]))

    assert plain(await stream.read()) == [("ADDED", {"n": "a"}), ("ADDED", {"n": "b"})]
    assert plain(await stream.read()) == [("ADDED", {"n": "c"})]
    assert await stream.read() == []
