"""Start of a worker from standby processes, which are released as its processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jobsetpy.agent.supervisor.part import Part, Services
from jobsetpy.agent.supervisor.standby.last_words import LastWords
from jobsetpy.agent.supervisor.standby.process import StandbyRules, Standbys
from jobsetpy.agent.supervisor.worker.rules import Phase
from jobsetpy.agent.supervisor.worker.starter import Started, Starter


class StandbyStarter(Starter, Part):
    """Releases standby processes; starts the command where none is ready.

    Args:
        services: what the supervisor's parts share.
        environs: the environment of each of the worker's processes.
        rules: the user's settings.
        is_parked: returns True while the pod has reported and has no seat.
        on_change: called when a standby process is ready or has ended, until the pod ends.
    """

    def __init__(
        self,
        services: Services,
        environs: Sequence[Mapping[bytes, bytes]],
        rules: StandbyRules,
        *,
        is_parked: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(services.processes, environs)
        self._worker = services.worker
        self._is_parked = is_parked
        cause = services.cause
        # Only programs under the launcher report why they fail.
        self._words = LastWords(cause.raised) if rules.preloaded else None
        self._standbys = Standbys(
            services.processes,
            environs,
            rules,
            log=services.log,
            worker_runs=self._is_useful,
            on_change=on_change,
        )

    def _is_useful(self) -> bool:
        # While a worker stops or is cleared, a standby would compete with it for memory.
        return self._worker.phase is Phase.RUNNING or self._is_parked()

    @property
    def ready(self) -> bool:  # type: ignore[override]
        """True if each process has a standby process that is ready, as far as it can."""
        return self._standbys.ready

    def use(self, environs: Sequence[Mapping[bytes, bytes]]) -> None:
        """Set the environment of the worker's and of standby processes, from now on."""
        super().use(environs)
        self._standbys.use(environs)

    def start(self, number: int, variables: Mapping[str, str]) -> Started:
        """Release a standby process; without one that is ready, start the command.

        Raises:
            OSError: it could not be started.
        """
        keep = None if self._words is None else self._words.follow
        if pid := self._standbys.take(number, variables, keep):
            return Started(pid, standby=True)
        return super().start(number, variables)

    def _cold(self, environ: Mapping[bytes, bytes]) -> int:
        if self._words is None:
            return super()._cold(environ)
        return self._words.start(super()._cold, environ)

    def worker_starting(self) -> None:
        """Forget the descriptors of the last worker."""
        if self._words is not None:
            self._words.close()

    def worker_started(self) -> None:
        """Schedule the next standby processes."""
        self._standbys.worker_started()

    def process_exited(self) -> None:
        """Read pending reports: the end of a process may be noticed before its report."""
        if self._words is not None:
            self._words.read()

    def parked(self) -> None:
        """Schedule standby processes: they make a spare pod quick to take a seat."""
        self._standbys.parked()

    def stopping(self, seconds: float, *, pod_ends: bool) -> None:  # noqa: ARG002 - no matter here
        """End the standby processes with the pod."""
        if pod_ends:
            self._standbys.close()

    def close(self) -> None:
        """Kill the standby processes: the pod ends."""
        self._standbys.close(kill=True)
