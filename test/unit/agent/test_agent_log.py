"""Log of the agent on pipes that are not read: lines are dropped and counted, nothing blocks."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jobsetpy.agent.protocol.log import JsonLog
from jobsetpy.aio import LoopClock


class Pipe:
    """A pipe with a log at its writing end."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self.log = JsonLog(LoopClock(), start=0.0, fd=self.writer)

    def fill(self, leave: int = 0) -> None:
        """Write until the pipe is full, then leave some pages free."""
        os.set_blocking(self.writer, False)
        try:
            while True:
                os.write(self.writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(self.writer, True)
        if leave:
            os.read(self.reader, leave * 4096)

    def read(self) -> list[dict[str, Any]]:
        """Return the lines that are in the pipe."""
        os.set_blocking(self.reader, False)
        data = b""
        try:
            while more := os.read(self.reader, 65536):
                data += more
        except BlockingIOError:
            pass
        return [json.loads(line) for line in data.lstrip(b"x").splitlines()]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe with a log, closed at the end."""
    made = Pipe()
    yield made
    for number in (made.reader, made.writer):
        os.close(number)


def finishes(work: Any) -> bool:
    """Return whether a call returns within five seconds."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(timeout=5)
    return not thread.is_alive()


def test_line_is_dropped_and_counted_when_the_pipe_is_full(pipe: Pipe) -> None:
    """The next line that fits has the number of those missing, and the one after it none."""
    pipe.fill()
    assert finishes(lambda: [pipe.log("lost") for _ in range(3)])
    pipe.read()
    pipe.log("kept")
    pipe.log("kept, too")

    kept = [(line["event"], line.get("dropped_lines")) for line in pipe.read()]
    assert kept == [("kept", 3), ("kept, too", None)]


def test_long_line_is_cut_when_it_would_not_fit(pipe: Pipe) -> None:
    """A pipe that polls as writable takes one page."""
    pipe.fill(leave=1)
    assert finishes(lambda: pipe.log("long", text="y" * 100_000))
    os.set_blocking(pipe.reader, False)
    data = os.read(pipe.reader, 1 << 20).lstrip(b"x")
    assert (len(data), data[-1:]) == (select.PIPE_BUF, b"\n")


def test_no_error_is_raised_when_the_reader_has_closed_the_pipe(pipe: Pipe) -> None:
    """A container runtime may close its end."""
    os.close(pipe.reader)
    pipe.log("lost")
    pipe.reader = os.open(os.devnull, os.O_RDONLY)


def test_file_takes_every_line(tmp_path: Any) -> None:
    """Files and terminals never poll as full."""
    with (tmp_path / "log").open("wb") as file:
        log = JsonLog(LoopClock(), start=0.0, fd=file.fileno())
        log("one")
        log("two")

    lines = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["one", "two"]
