"""Says what is going on: a live line on a terminal, plain lines elsewhere, silence in tests."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self, TextIO


class Progress:
    """The silent one, which tests get; `Shown` prints."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def begin(self, text: str) -> None:
        """Something that takes long has begun."""

    def step(self, text: str) -> None:
        """Something is done."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""


class Shown(Progress):
    """Prints with the seconds since the start; with rich a spinner shows what is going on now."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._start = time.monotonic()
        self._status: object | None = None
        self._console: object | None = None
        if self._stream.isatty():
            try:
                from rich.console import Console
            except ImportError:
                return
            self._console = Console(file=self._stream, highlight=False)

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def begin(self, text: str) -> None:
        self._stop()
        if self._console is None:
            self._line(f"{text} ...")
            return
        from rich.console import Console
        from rich.live import Live
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        assert isinstance(self._console, Console)
        bar = Bar(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        bar.add_task(text, total=None)
        live = Live(bar, console=self._console, transient=True, refresh_per_second=8)
        live.start()
        self._status = live

    def step(self, text: str) -> None:
        self._stop()
        self._line(text)

    def note(self, text: str) -> None:
        self._stop()
        self._line(text)

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()  # type: ignore[attr-defined] # a rich Live, imported only when used
            self._status = None

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._start
        print(f"{elapsed:7.1f}s  {text}", file=self._stream, flush=True)
