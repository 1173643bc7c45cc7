"""Runs a module and records long turns of its event loop.

``python -m bench.scale_probe FILE PYTHON -m MODULE ARGUMENT...`` writes a line to FILE for each
turn of the loop that took longer than ``NOTED_S``: monotonic time, CPU seconds of the loop's
thread, and wall-clock seconds. CPU time is that of the program; wall-clock time includes other load
on the machine. A turn runs all callbacks that are ready, so no single one takes longer.

If the variable ``STACKS`` is set, the stacks of long turns are written next to FILE.
"""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Final, TextIO

import uvloop

NOTED_S: Final = 0.005
PERIOD_S: Final = 0.002
LONG_S: Final = 0.02


class Beat:
    """A timer that measures the time between its calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, out: TextIO) -> None:
        self._loop = loop
        self._out = out
        self.cpu = time.thread_time()
        self._due = time.monotonic()
        loop.call_soon(self)

    def __call__(self) -> None:
        """Record the time spent, and start again."""
        now, cpu = time.monotonic(), time.thread_time()
        if cpu - self.cpu > NOTED_S:
            print(f"{now:.6f} {cpu - self.cpu:.6f} {now - self._due:.6f}", file=self._out)
        self.cpu, self._due = cpu, now + PERIOD_S
        self._loop.call_later(PERIOD_S, self)


def write_stacks(beat: Beat, file: str) -> None:
    """Record the main thread's stack whenever its turn has become long."""
    main = threading.main_thread().ident
    assert main is not None
    clock = time.pthread_getcpuclockid(main)
    with Path(file).open("a", buffering=1) as out:
        while True:
            time.sleep(LONG_S / 4)
            spent = time.clock_gettime(clock) - beat.cpu
            if spent > LONG_S:
                stack = "".join(traceback.format_stack(sys._current_frames()[main])[-9:])
                print(f"---- {time.monotonic():.3f} {spent * 1000:.0f} ms\n{stack}", file=out)


def main() -> None:
    """Run the module with the arguments given."""
    file, module = sys.argv[1], sys.argv[4]
    make = uvloop.new_event_loop
    out = Path(file).open("a", buffering=1)  # noqa: SIM115 - as long as the process

    def with_beat() -> asyncio.AbstractEventLoop:
        loop = make()
        beat = Beat(loop, out)
        if "STACKS" in os.environ:
            arguments = (beat, f"{file}.stacks")
            threading.Thread(target=write_stacks, args=arguments, daemon=True).start()
        return loop

    uvloop.new_event_loop = with_beat  # type: ignore[assignment]
    sys.argv = [module, *sys.argv[5:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
