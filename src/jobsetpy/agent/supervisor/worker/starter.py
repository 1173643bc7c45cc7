"""Start of the worker's processes, each with an environment of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jobsetpy.agent.supervisor.worker.processes import Processes
from jobsetpy.agent.supervisor.worker.settings import encoded


class Started(NamedTuple):
    """Process of the worker.

    Args:
        pid: its process id.
        standby: True if it was prepared before the barrier lifted.
    """

    pid: int
    standby: bool = False


class Starter:
    """Starts the worker's processes from the command.

    Args:
        processes: runs them.
        environs: the environment of each of them.
    """

    ready = True
    """True if nothing can be prepared any further before the barrier lifts."""

    def __init__(self, processes: Processes, environs: Sequence[Mapping[bytes, bytes]]) -> None:
        self._processes = processes
        self._environs = environs

    @property
    def count(self) -> int:
        """Number of the worker's processes."""
        return len(self._environs)

    def use(self, environs: Sequence[Mapping[bytes, bytes]]) -> None:
        """Set the environment of each of the worker's processes, from now on."""
        self._environs = environs

    def start(self, number: int, variables: Mapping[str, str]) -> Started:
        """Start one of the worker's processes.

        Args:
            number: its index, from 0.
            variables: variables that depend on the epoch.

        Raises:
            OSError: it could not be started.
        """
        return Started(self._cold({**self._environs[number], **encoded(variables)}))

    def _cold(self, environ: Mapping[bytes, bytes]) -> int:
        return self._processes.start(environ)
