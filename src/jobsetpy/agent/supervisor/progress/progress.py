"""Progress that a worker reports, and detection of hangs.

The worker writes its step into a file in memory, or only touches it. That takes it a few
microseconds and needs no library; the agent checks the file's status a few times a second if hangs
are to be detected. Otherwise it only waits for the first step, at growing intervals, and reads the
file again when the worker has ended.

Nothing in the file can stop a training: unreadable contents are logged once and count as a touch.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import ConfigurationError, number_of
from jobsetpy.aio import Timer
from jobsetpy.api import hang_sections
from jobsetpy.api.agent_reports import MAX_STEP, TOUCHED

VARIABLE: Final = "JOBSET_PROGRESS_FILE"
"""Variable with the path of the file, for the worker. A value set by the container is kept."""


POLL_S: Final = 0.25
"""Interval in seconds between checks. After a longer pause the agent itself did not run (it was
frozen with its container, or starved), so at most twice this interval counts as idle time."""

AUTO: Final = "auto"
"""Value in place of seconds: the limit follows from the worker's observed steps."""

AUTO_FACTOR: Final = 5
AUTO_LEAST_S: Final = 30.0
AUTO_LEAST_OUTPUT_S: Final = 300.0
"""The same where progress is seen in the output only: a program that was not made for this does not
say when it saves or evaluates, and usually prints nothing meanwhile."""
AUTO_AFTER: Final = 3
"""Number of steps that must be observed before there is such a limit."""

KEPT_STEPS: Final = 32
"""Number of latest steps whose durations are kept, through all runs of the worker."""

_LONGEST: Final = 64


class ProgressRules(msgspec.Struct, frozen=True, kw_only=True):
    """File of a worker's progress, and limits after which it counts as hung.

    Args:
        file: path of the file that it writes its step into, or touches.
        after_s: maximum time in seconds after its last progress; 0 for no limit.
        first_s: maximum time in seconds from its start to its first progress; 0 for no limit, so
            that a worker that never reports progress, as most ranks of a group may, never counts as
            hung.
        auto: in place of ``after_s``, five times the longest step observed, at least 30 s; in a
            section, the longest of that section.
        sections: maximum times in seconds in sections of the program, by the word after the step.
        paced: True if the ring of heartbeats needs the durations of steps.
    """

    file: str
    after_s: float = 0.0
    first_s: float = 0.0
    auto: bool = False
    sections: dict[str, float] = {}
    paced: bool = False

    @property
    def watches(self) -> bool:
        """Return True if hangs are detected at all."""
        return self.auto or self.after_s > 0


def load(environ: Mapping[str, str], file: str) -> ProgressRules:
    """Read ``HANG_SECONDS``, ``HANG_SECTIONS``, ``HANG_FIRST_SECONDS`` and ``HEARTBEAT_SECONDS``.

    Raises:
        ConfigurationError: a value cannot be used; the message names the variable.
    """
    auto = environ.get("HANG_SECONDS") == AUTO
    after = 0 if auto else number_of(environ, "HANG_SECONDS", 0, 1, hang_sections.MAX_SECONDS)
    for name in ("HANG_FIRST_SECONDS", "HANG_SECTIONS"):
        if not after and not auto and environ.get(name):
            raise ConfigurationError(f"{name} has no effect without HANG_SECONDS")
    first = number_of(environ, "HANG_FIRST_SECONDS", 0, 1, hang_sections.MAX_SECONDS)
    sections = hang_sections.hang_sections(environ.get("HANG_SECTIONS", ""))
    if sections is None:
        raise ConfigurationError(f"HANG_SECTIONS {hang_sections.SECTIONS_FORM}")
    paced = bool(environ.get("HEARTBEAT_SECONDS"))
    return ProgressRules(
        file=file, after_s=after, first_s=first, auto=auto, sections=sections, paced=paced
    )


class Steps:
    """Contents of the file, over one run of the worker.

    Args:
        log: log for invalid contents, each kind once.
    """

    source = "progress file"

    def __init__(self, log: Log) -> None:
        self._log = log
        self._reported: set[str] = set()
        self.touched = False
        self.step = -1
        """Last reported step, or -1."""
        self.section = ""

    def note(self, step: int, section: str) -> None:
        """Process progress that a line of the output has shown; the step may be -1."""
        self.touched = True
        self.section = section
        if 0 <= step < self.step:
            self.log_once("backwards", "has gone backwards", step=step, highest=self.step)
        self.step = max(self.step, step)

    def take(self, data: bytes) -> None:
        """Process new contents of the file; only the beginning of long ones."""
        self.touched = True
        words = data.split()
        self.section = ""
        if not words:
            return
        text = words[0]
        if len(words) == 2 and (section := hang_sections.section_name(words[1])):
            self.section = section
        elif len(words) > 1:
            text = data
        if len(data) >= _LONGEST or not text.isdigit():
            self.log_once("garbage", "is no step", text=repr(data[:24]))
        elif len(text.lstrip(b"0")) > 19 or int(text) > MAX_STEP:
            self.log_once("huge", "is too large for a step", text=repr(data[:24]))
        elif int(text) < self.step:
            self.log_once("backwards", "has gone backwards", step=int(text), highest=self.step)
        else:
            self.step = int(text)

    def log_once(self, kind: str, what: str, **fields: object) -> None:
        """Log a line about the file, or the output, once for each kind."""
        if kind not in self._reported:
            self._reported.add(kind)
            self._log(f"the {self.source} {what}", level="warning", **fields)

    @property
    def report(self) -> str | None:
        """Value of the pod's annotation; ``None`` if the worker has shown no progress."""
        if self.step >= 0:
            return str(self.step)
        return TOUCHED if self.touched else None


class StepTimes:
    """Longest steps of a worker through all its runs, by section.

    Args:
        log: log for the resulting limit, when it is first known and when it has doubled.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._seen: dict[str, tuple[int, float]] = {}
        self._reported: dict[str, float] = {}
        self.least_s = AUTO_LEAST_S

    def note(self, section: str, seconds: float) -> None:
        """Record the duration of a step, or of a section."""
        if section not in self._seen and len(self._seen) > hang_sections.MAX_SECTIONS:
            return
        count, longest = self._seen.get(section, (0, 0.0))
        self._seen[section] = count + 1, max(longest, seconds)
        limit, _ = self.limit(section)
        if limit and limit >= 2 * self._reported.get(section, 0.0):
            self._reported[section] = limit
            about = {"section": section} if section else {}
            self._log("limit for hangs", seconds=round(limit, 1), **about)

    def limit(self, section: str) -> tuple[float, str]:
        """Return the limit in seconds for the next one, and what it follows from, in a few words.

        The limit is 0 before enough steps were observed.
        """
        count, longest = self._seen.get(section, (0, 0.0))
        where = f"time in section {section}" if section else "step"
        origin = f"the limit follows from the longest {where}, {longest:.1f} s"
        return max(self.least_s, AUTO_FACTOR * longest) if count >= AUTO_AFTER else 0.0, origin


class Idle:
    """Time without progress, as far as the agent itself has run.

    Args:
        rules: limits of that time.
        now: time on the monotonic clock, in seconds.
        times: durations of the steps so far, if limits follow from them.
    """

    def __init__(self, rules: ProgressRules, now: float, times: StepTimes | None = None) -> None:
        self._rules = rules
        self._times = times
        self._at = now
        self._idle = 0.0
        self._first = True
        self._section = ""

    @property
    def limit(self) -> tuple[float, str]:
        """Current limit in seconds, 0 for none, and what it follows from; "" if configured."""
        if self._first:
            return self._rules.first_s, ""
        if self._section in self._rules.sections:
            return self._rules.sections[self._section], ""
        if self._times is not None:
            return self._times.limit(self._section)
        return self._rules.after_s, ""

    def look(self, now: float, *, progress: bool, known: bool = True, section: str = "") -> bool:
        """Return True if the limit is exceeded.

        Args:
            now: time on the monotonic clock, in seconds.
            progress: True if there was progress since the last check.
            known: False if that cannot be determined.
            section: section of the program, as reported with the progress.
        """
        passed, self._at = min(now - self._at, 2 * POLL_S), now
        if progress:
            if self._times is not None and not self._first:
                self._times.note(self._section, self._idle + passed)
            self._first = False
            self._section = section
        self._idle = 0.0 if progress or not known else self._idle + passed
        return 0 < self.limit[0] <= self._idle


class Progress:
    """Progress of the worker, one run after the other.

    Args:
        rules: path of the file, and limits for hangs.
        log: log for failures.
        on_hung: called with the exceeded limit in seconds, once for each run, and with a text on
            what an automatic limit follows from.
    """

    def __init__(
        self, rules: ProgressRules, *, log: Log, on_hung: Callable[[float, str], None]
    ) -> None:
        self.path = rules.file
        """Path of the file."""
        self._rules = rules
        self._log = log
        self._on_hung = on_hung
        self.steps = Steps(log)
        """Progress of the current or last run."""
        self._times = StepTimes(log) if rules.auto else None
        self._usable = True
        self._seen: tuple[int, int, int] | None = None
        self._has_file = False
        self._printed = False
        self.reads_output = False
        """True if the worker's output shows progress, too."""
        self.output_known = True
        """False while an unknown part of the output was not looked at."""
        self._began = 0.0
        self._moved_at = 0.0
        self._recent: deque[float] = deque(maxlen=KEPT_STEPS)
        self.first: str | None = None
        """First step of that run and the seconds since its start; ``None`` if not observed."""
        self._poll = Timer()

    def pace(self) -> tuple[float, tuple[float, ...]]:
        """Return the seconds since the last progress (or the start), and durations of latest steps.

        They are current if the rules are ``paced``. There are no durations while the file cannot be
        read: a worker whose progress is unknown does not count as stalled. The thread of the ring
        may call this.
        """
        steps = () if self._seen is None else tuple(self._recent)
        return time.monotonic() - self._moved_at, steps

    def started(self) -> None:
        """Prepare an empty file for a worker that is about to start."""
        self._moved_at = time.monotonic()
        self._printed = False
        self.steps = Steps(self._log)
        self.first = None
        try:
            _make_empty(self.path)
            self._seen = file_state(self.path)
        except OSError as error:
            if self._usable:
                self._log(
                    "there is no progress file: steps and hangs of the worker are not noticed",
                    level="warning" if self._rules.watches else "info",
                    file=self.path,
                    error=str(error),
                )
            self._usable, self._seen = False, None
            if not self.reads_output:
                return
        else:
            self._usable = True
        self._began = asyncio.get_running_loop().time()
        idle = Idle(self._rules, self._began, self._times)
        self._poll.start(POLL_S, self._look, idle)

    def printed(self, step: int, section: str) -> None:
        """Note progress that the worker's output shows, unless the worker writes the file.

        Args:
            step: the step; -1 if none was seen.
            section: section of the program; "" for none.
        """
        if self._has_file:
            return
        if self._times is not None:
            self._times.least_s = AUTO_LEAST_OUTPUT_S
        self.steps.source = "worker's output"
        self._printed = True
        self._moved()
        self.steps.note(step, section)
        self._note_first()

    @property
    def is_off_without_steps(self) -> bool:
        """Return True if hangs are to be detected, but none is before the first progress."""
        return self._rules.watches and not self._rules.first_s

    def report_now(self) -> str | None:
        """Return the value of the pod's annotation while the worker runs."""
        # Where the file is looked at for hangs, a change that is read here would not count there.
        if self._usable and not (self._rules.watches or self._rules.paced):
            self._changed()
        return self.steps.report

    def stop(self) -> None:
        """Stop the detection of hangs: the worker stops, or has ended."""
        self._poll.cancel()

    def ended(self) -> None:
        """Read the last report of a worker that has ended."""
        self.stop()
        if self._usable:
            self._changed()

    def _look(self, idle: Idle) -> None:
        loop = asyncio.get_running_loop()
        progress = (self._usable and self._changed()) or self._printed
        by_output = self.reads_output and not self._has_file
        known = self.output_known if by_output else self._seen is not None
        self._printed = False
        section = self.steps.section
        if idle.look(loop.time(), progress=progress, known=known, section=section):
            limit = idle.limit
            if self._times is not None and not self._has_file:
                # A limit that was too short for a program as it is costs one restart, not all.
                self._times.note(section, limit[0])
            self._on_hung(*limit)
        elif self._rules.watches or self._rules.paced:
            self._poll.start(POLL_S, self._look, idle)
        elif self.first is None:
            # Many programs never write a step: that is not worth a check each quarter of a second.
            pause = max(POLL_S, (loop.time() - self._began) / 100)
            self._poll.start(pause, self._look, idle)

    def _changed(self) -> bool:
        """Process the file if it was written to or touched; return True if so."""
        try:
            state = file_state(self.path)
            if state == self._seen:
                return False
            data = _read(self.path)
        except OSError as error:
            self._seen = None
            self.steps.log_once(
                "gone", "cannot be read: no hang is noticed until it can", error=str(error)
            )
            return False
        self._seen = state
        if not self._has_file:
            self._has_file = True
            if self._times is not None:
                self._times.least_s = AUTO_LEAST_S
        self._moved()
        self.steps.take(data)
        self._note_first()
        return True

    def _moved(self) -> None:
        now = time.monotonic()
        if self.steps.touched:  # the time to the first step includes the start
            self._recent.append(now - self._moved_at)
        self._moved_at = now

    def _note_first(self) -> None:
        if self.first is None and self.steps.step >= 0:
            seconds = asyncio.get_running_loop().time() - self._began
            self.first = f"{self.steps.step} {min(seconds, 9999999.0):.3f}"


_CAREFUL: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags with which a pipe without a reader, or a link, is an error and does not block."""


def _make_empty(path: str) -> None:
    """Create or empty the file, and let any user write to it.

    Programs may switch to another user before they work (gosu, setpriv, su-exec), and would crash
    at their first step on a file that only root may write to.
    """
    # Anything else at this path must not stop the agent.
    flags = os.O_TRUNC | os.O_WRONLY | _CAREFUL
    try:
        # Not with O_CREAT: in a sticky folder (/dev/shm) the kernel refuses that, even to root, for
        # a file that the worker has replaced as another user (fs.protected_regular).
        number = os.open(path, flags)
    except FileNotFoundError:
        number = os.open(path, flags | os.O_CREAT, 0o666)
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISREG(mode) and mode & 0o666 != 0o666:
            with suppress(OSError):  # another user's file, which keeps its mode
                os.fchmod(number, 0o666)  # regardless of the umask
    finally:
        os.close(number)


def file_state(path: str) -> tuple[int, int, int]:
    """Return values that change when the file is written to, touched or replaced."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is no ordinary file")
    return found.st_mtime_ns, found.st_ino, found.st_size


def file_state_or_none(path: str) -> tuple[int, int, int] | None:
    """Return those values, or None if the file cannot be read."""
    with suppress(OSError):
        return file_state(path)
    return None


def _read(path: str) -> bytes:
    """Return the beginning of the file."""
    fd = os.open(path, os.O_RDONLY | _CAREFUL)
    try:
        return os.read(fd, _LONGEST)
    finally:
        os.close(fd)
