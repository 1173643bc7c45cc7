"""Identity of a process: a pid alone can belong to another process later.

A process is identified by boot, pid and start time. Signals are sent through a pidfd that was
opened *before* the start time was compared, so they never reach a process with a recycled pid.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PROC = Path("/proc")
# Indexes of fields in /proc/PID/stat after the command name, which may contain blanks and brackets.
_STATE, _PARENT, _UTIME, _STIME, _START_TIME = 0, 1, 11, 12, 19


@cache
def boot_id() -> str:
    """Return the kernel's id of this boot: pids are not valid across reboots."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def stat_fields(pid: int, proc: Path = PROC) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` after the command name; None if there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


@dataclass(frozen=True)
class ProcessId:
    """One process of one boot."""

    pid: int
    start_time: int
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the identity of the process that has `pid` now; None if there is none."""
        fields = stat_fields(pid)
        return None if fields is None else cls(pid, int(fields[_START_TIME]), boot_id())

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ProcessId:
        return cls(int(data["pid"]), int(data["start_time"]), str(data["boot"]))

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "start_time": self.start_time, "boot": self.boot}

    def alive(self) -> bool:
        """Return True while it runs; a zombie counts as ended."""
        fields = stat_fields(self.pid)
        return (
            fields is not None
            and self.boot == boot_id()
            and int(fields[_START_TIME]) == self.start_time
            and fields[_STATE] not in "ZX"
        )

    def open(self) -> int | None:
        """Return a pidfd of this process, which the caller closes; None if it has ended."""
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive():
            return fd
        os.close(fd)
        return None

    def send(self, number: int) -> bool:
        """Send the signal; return False if the process has ended."""
        fd = self.open()
        if fd is None:
            return False
        try:
            signal.pidfd_send_signal(fd, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(fd)
        return True

    def wait(self, timeout_s: float) -> bool:
        """Wait for the process to end; return False if it still runs after `timeout_s`."""
        fd = self.open()
        if fd is None:
            return True
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, fd)
            ready, _, _ = select.select([fd], [], [], timeout_s)
        return bool(ready)

    def end(self, *, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL after `grace_s`; return when it has ended or cannot be."""
        if self.send(signal.SIGTERM) and not self.wait(grace_s):
            self.send(signal.SIGKILL)
            self.wait(10.0)

    def cpu_seconds(self) -> float:
        """User plus system time of all its threads so far; 0.0 once it has ended."""
        fields = stat_fields(self.pid)
        if fields is None or int(fields[_START_TIME]) != self.start_time:
            return 0.0
        return (int(fields[_UTIME]) + int(fields[_STIME])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Memory in RAM now; 0 once it has ended."""
        if not self.alive():
            return 0
        pages = int((PROC / str(self.pid) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def find_child(parent: int, *, inner_pid: int | None = None, proc: Path = PROC) -> int | None:
    """Return a child of `parent`: the first one, or that with `inner_pid` in its namespace."""
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        fields = stat_fields(pid, proc)
        if fields is None or int(fields[_PARENT]) != parent:
            continue
        if inner_pid is None:
            return pid
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = (entry / "status").read_text()
            pids = next(line for line in status.splitlines() if line.startswith("NSpid:"))
            if int(pids.split()[-1]) == inner_pid:
                return pid
    return None


def patient(seconds: float) -> float:
    """Multiply a timeout for an idle machine by ``JOBSETPY_PATIENCE``."""
    return seconds * float(os.environ.get("JOBSETPY_PATIENCE") or 1)


def wait_until(condition: Any, timeout_s: float, pause_s: float = 0.02) -> bool:
    """Poll `condition()` until it is true; return False after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True
