"""Output that a stream's thread offers: which run of the worker it belongs to."""

from __future__ import annotations

import os
import threading
import time

import pytest

from jobsetpy.agent.supervisor.output.streams import CHUNK, Stream
from support.patience import eventually


class Offers:
    """Tap that notes what it is offered; a worker's run may begin meanwhile."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self.begins: list[tuple[Stream, int]] = []
        self.takes = True

    def offer(self, stream: int, run: int, data: memoryview) -> bool:
        """Note a piece."""
        self.seen.append((run, bytes(data)))
        while self.begins:
            stream_of, number = self.begins.pop()
            stream_of.begin_run(number)
        return self.takes

    def miss(self, stream: int, count: int) -> None:
        """Nothing is missed."""


@pytest.mark.parametrize("while_reading", [False, True])
async def test_bytes_are_of_the_run_that_wrote_them_when_runs_follow_quickly(
    while_reading: bool,
) -> None:
    """The container's pipe was full, so that several runs are read at once."""
    offers = Offers()
    source, copy = os.pipe()
    stream = Stream(0, [copy], offers)
    try:
        os.write(copy, b"old")
        stream.begin_run(1)
        os.write(copy, b"first")
        if while_reading:
            offers.begins.append((stream, 2))
        else:
            stream.begin_run(2)
            os.write(copy, b"second")
        stream.start()
        await eventually(lambda: offers.seen[-1:] and offers.seen[-1][1] != b"old")
        if while_reading:
            os.write(copy, b"second")
        await eventually(lambda: offers.seen[-1:] == [(2, b"second")])
        assert offers.seen == [(0, b"old"), (1, b"first"), (2, b"second")]
        stream.close()  # a piece is offered before it is copied
        assert os.read(source, 100) == b"oldfirstsecond"
    finally:
        stream.close()
        os.close(copy)
        os.close(source)


@pytest.mark.parametrize(("call", "size"), [("readv", 9), ("splice", CHUNK + 9)])
def test_bytes_out_of_the_pipe_count_when_the_copier_has_not_counted_them(
    monkeypatch: pytest.MonkeyPatch, call: str, size: int
) -> None:
    """They are waited for when the pod ends, and are of the run that wrote them."""
    real, offers = getattr(os, call), Offers()
    taken, written = threading.Event(), threading.Event()

    def slow(*given: object, **more: int) -> int:
        time.sleep(0.05)
        count: int = real(*given, **more)
        taken.set()
        # Whoever asks for the count of bytes waits meanwhile, before it can write.
        written.wait(0.05 if call == "readv" else 10)
        return count

    monkeypatch.setattr(os, call, slow)
    offers.takes = call == "readv"
    source, copy = os.pipe()
    stream = Stream(0, [copy], offers)
    try:
        os.write(copy, bytes(size))
        stream.start()
        assert taken.wait(10)
        if call == "readv":
            assert stream.is_behind
            stream.begin_run(1)
        os.write(copy, b"last")
        written.set()
        stream.close()
        assert os.read(source, 2 * CHUNK) == bytes(size) + b"last"
        assert [run for run, _ in offers.seen] == ([0, 1] if call == "readv" else [0])
    finally:
        os.close(copy)
        os.close(source)
