"""Part of the supervisor that reads the worker's output: progress in it, and rules on its lines."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from jobsetpy.agent.protocol.settings import ConfigurationError
from jobsetpy.agent.supervisor.cause import printable
from jobsetpy.agent.supervisor.output.matching import Matching, Patterns
from jobsetpy.agent.supervisor.output.streams import Stream, open_streams
from jobsetpy.agent.supervisor.part import Part, Services, Then
from jobsetpy.agent.supervisor.worker.rules import Phase
from jobsetpy.aio import Timer
from jobsetpy.api import agent_keys
from jobsetpy.api.agent_reports import MAX_CAUSE_TEXT
from jobsetpy.api.log_lines import LogRule, Seen, parse_rules, progress_patterns

if TYPE_CHECKING:
    from jobsetpy.aio import Supervisor as Tasks

TICK_S: Final = 0.5
"""Interval between checks of times. After a longer pause the agent did not run, see ``Idle``."""
SILENT_S: Final = 600.0
"""Time after which it is logged that no line has shown progress."""
CATCH_UP_S: Final = 0.2
"""Maximum time for which the report of the next epoch waits for the last lines of a worker."""
_RETRY_S: Final = 0.002
REPORT_EVERY_S: Final = 60.0
"""Minimum interval between reports of one rule that only reports."""


def load(environ: Mapping[str, str]) -> Patterns:
    """Read ``PROGRESS_PATTERN`` and ``LOG_RULES`` (JSON), of which at least one is given.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    name = "PROGRESS_PATTERN"
    try:
        given = environ.get(name, "")
        progress = progress_patterns(given) if given else {}
        name, rules = "LOG_RULES", []
        if given := environ.get(name, ""):
            rules = parse_rules(msgspec.json.decode(given))
    except (ValueError, msgspec.DecodeError) as why:
        raise ConfigurationError(f"{name} {why}") from why
    return Patterns(progress=progress, rules=rules)


class Lateness:
    """Lines that a rule requires in time, and how long they are awaited.

    Args:
        rule: the rule, which has times.
    """

    def __init__(self, rule: LogRule) -> None:
        self.rule = rule
        self._idle = 0.0
        self._found = False

    def start(self) -> None:
        """Begin with the worker's start."""
        self._idle, self._found = 0.0, False

    def seen(self) -> None:
        """Note a line."""
        self._idle, self._found = 0.0, True

    def late(self, passed: float, *, known: bool) -> float:
        """Return the time limit that is exceeded; 0 if none is.

        Args:
            passed: seconds since the last call.
            known: False if lines may have been missed in them.
        """
        self._idle = self._idle + passed if known else 0.0
        limit = self.rule.again_within if self._found else self.rule.within
        return limit if 0 < limit <= self._idle else 0.0


class Output(Part):
    """Output of the worker, through pipes of the agent.

    Args:
        services: what the supervisor's parts share.
        patterns: what its lines are compared with.
    """

    def __init__(self, services: Services, patterns: Patterns) -> None:
        self._services = services
        self._log = services.log
        self._worker = services.worker
        self._progress = services.progress
        self._rules = {rule.name: rule for rule in patterns.rules}
        self._late = [Lateness(rule) for rule in patterns.rules if rule.is_timed]
        self._patterns = patterns
        self._streams: list[Stream] = []
        self._matching: Matching | None = None
        self._run = 0
        self._ticks = Timer()
        self._ticked_at = self._silent_s = 0.0
        self._dropped = 0
        self._said: set[str] = set()
        self._reported: dict[str, float] = {}
        self._pattern = ""
        self._failed = self._ending = False
        self._then: Then | None = None
        self._ask_again, self._give_up = Timer(), Timer()

    def begin(self, tasks: Tasks) -> None:  # noqa: ARG002 - threads and a process serve
        """Put pipes before the container's streams, and start to match."""
        matching = Matching(
            self._patterns,
            self._services.processes,
            on_seen=self._seen,
            on_end=self._matching_ended,
        )
        self._streams, problems = open_streams(matching)
        for why in problems:
            self._log("an output stream is not read", level="warning", why=why)
        if not self._streams:
            return
        self._progress.reads_output = bool(self._patterns.progress)
        self._matching = matching
        matching.start()  # a fork, and therefore before the threads
        for stream in self._streams:
            stream.start()

    def worker_starting(self) -> None:
        """Assign further output to the next run."""
        self._run += 1
        self._failed = False
        for stream in self._streams:
            stream.begin_run(self._run)
        for each in self._late:
            each.start()

    def worker_started(self) -> None:
        """Watch the times."""
        if self._streams:
            self._ticked_at = asyncio.get_running_loop().time()
            self._ticks.start(TICK_S, self._tick)

    def process_exited(self) -> None:
        """Note that the worker ends by itself: its last lines may say why."""
        self._failed = self._failed or self._worker.phase is Phase.RUNNING

    def epoch_over(self) -> None:
        """Drop what waits for the last lines of a worker."""
        self._then = None

    def before_report(self, then: Then) -> None:
        """Call ``then`` once the last lines of a failed worker are matched, or a moment later."""
        if self._matching is None or not self._failed:
            then()
            return
        self._then = then
        self._give_up.start(CATCH_UP_S, self._caught_up)
        self._catch_up()

    def _catch_up(self) -> None:
        behind = any(stream.is_behind for stream in self._streams)
        if self._matching is not None and (behind or not self._matching.ping()):
            self._ask_again.start(_RETRY_S, self._catch_up)

    def _caught_up(self) -> None:
        self._ask_again.cancel()
        self._give_up.cancel()
        then, self._then = self._then, None
        if then is not None and not self._ending:
            then()

    def annotations(self) -> dict[str, str | None]:
        """Remove what a rule has reported of the last run."""
        reported, self._reported = self._reported, {}
        return {agent_keys.LOG_REPORT_ANNOTATION: None} if reported else {}

    def close(self) -> None:
        """Copy what is left of the output: the pod ends."""
        for timer in (self._ticks, self._ask_again, self._give_up):
            timer.cancel()
        if self._matching is not None:
            self._matching.close()
        for stream in self._streams:
            stream.close()

    def _tick(self) -> None:
        if self._worker.phase is not Phase.RUNNING or self._matching is None:
            return
        now = asyncio.get_running_loop().time()
        passed, self._ticked_at = min(now - self._ticked_at, 2 * TICK_S), now
        self._ticks.start(TICK_S, self._tick)
        dropped, self._dropped = self._matching.dropped - self._dropped, self._matching.dropped
        if dropped:
            self._say(
                "a part of the output is not matched: there is too much of it",
                bytes=self._matching.dropped,
            )
        for stream in self._streams:
            if stream.broken is not None:
                self._say("the output cannot be written", error=str(stream.broken))
        known = not dropped and self._matching.runs
        self._progress.output_known = known and self._patterns.progress != {}
        if self._patterns.progress and not self._pattern and self._silent_s < SILENT_S:
            self._silent_s += passed
            if self._silent_s >= SILENT_S:
                self._say(f"no line of the output has shown progress in {SILENT_S / 60:.0f} min")
        for each in self._late:
            if limit := each.late(passed, known=known):
                came = "again " if limit == each.rule.again_within else ""
                self._broken(each.rule, f"no line {came}within {limit:.0f} s")

    def _say(self, event: str, **fields: object) -> None:
        """Log a warning once."""
        if event not in self._said:
            self._said.add(event)
            self._log(event, level="warning", **fields)

    def _matching_ended(self, code: int) -> None:
        self._say("the matching process has ended, and is started again", exit_code=code)

    def _seen(self, seen: Seen) -> None:
        """Handle findings; those of an earlier worker, or of one that was stopped, are ignored."""
        for name in seen.slow:
            self._say(f"a pattern takes too long and is no longer used: {name}")
            text = f"{name}: its pattern takes too long, and is no longer used"
            self._services.reporter.annotate({agent_keys.LOG_REPORT_ANNOTATION: text})
            self._forget(name)
        if seen.run == self._run and self._is_watched:
            self._take(seen)
        if seen.caught_up:
            self._caught_up()

    @property
    def _is_watched(self) -> bool:
        """Return True if the worker's lines matter: it runs, or has failed by itself."""
        phase = self._worker.phase
        over = self._failed and phase in {Phase.CLEARING, Phase.WAITING}
        return phase is Phase.RUNNING or over

    def _take(self, seen: Seen) -> None:
        if seen.progress:
            if not self._pattern:
                self._pattern = seen.pattern or "progress-pattern"
                self._log("the output shows progress", pattern=self._pattern, step=seen.step)
            self._progress.printed(seen.step, seen.section)
        for each in self._late:
            if each.rule.name in seen.seen:
                each.seen()
        for name, line in seen.broken.items():
            if name in self._rules:
                self._broken(self._rules[name], line)

    def _forget(self, name: str) -> None:
        """Use a pattern no longer; a new matching process must not try it again."""
        progress = {
            each: text
            for each, text in self._patterns.progress.items()
            if name != (each or "progress-pattern")
        }
        rules = [rule for rule in self._patterns.rules if rule.name != name]
        self._patterns = Patterns(progress=progress, rules=rules)
        self._late = [each for each in self._late if each.rule.name != name]
        if self._matching is not None:
            self._matching.use(self._patterns)

    def _broken(self, rule: LogRule, line: str) -> None:
        """Do what a rule says: it is broken, by a line or by the want of one."""
        self._services.processes.collect()  # one that has exited with 0 by now has succeeded
        if not self._is_watched or self._ending:
            return
        why = printable(line)
        loop = asyncio.get_running_loop()
        if rule.then == "report":
            if loop.time() < self._reported.get(rule.name, -REPORT_EVERY_S) + REPORT_EVERY_S:
                return
            self._reported[rule.name] = loop.time()
        level = "info" if rule.then == "report" else "error"
        self._log("a log rule applies", level=level, rule=rule.name, line=why, then=rule.then)
        text = f"{rule.name}: {why}"[:MAX_CAUSE_TEXT].rstrip()
        match rule.then:
            case "report":
                self._services.reporter.annotate({agent_keys.LOG_REPORT_ANNOTATION: text})
                for each in self._late:
                    if each.rule is rule:
                        each.start()
            case "unfit-node":
                self._end(
                    agent_keys.AGENT_STATE_ANNOTATION, f"{agent_keys.UNFIT_STATE}{text}", unfit=True
                )
            case "end-pod":
                self._services.cause.log_rule(text)
                self._end(
                    agent_keys.RESTART_CAUSE_ANNOTATION, self._services.cause.take(), unfit=False
                )
            case _:
                self._services.cause.log_rule(text)
                # A line about a failure often comes before its details, which are not cut off.
                dump = rule.is_timed or bool(rule.number)
                self._services.act(self._worker.hung(dump=dump))

    def _end(self, name: str, text: str | None, *, unfit: bool) -> None:
        self._ending = True

        def end() -> None:
            self._services.act(self._worker.end_pod(unfit=unfit))

        self._services.report_last(name, text, end)
