"""File that holds the running epoch, from which a worker learns that its epoch is over.

A pod that is cut off from its node's network may still reach shared storage while another pod has
its rank. Its worker can compare the file with its own ``JOBSET_EPOCH`` immediately before it makes
a checkpoint valid. The agent writes the file before it starts a worker, and removes it before it
kills one. A worker that is asked to stop keeps it for its grace period, since what it saves then
counts: the manager waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.supervisor.progress import memory_file

VARIABLE: Final = "JOBSET_EPOCH_FILE"
"""Variable with the path of the file, for the worker. A value set by the container is kept."""


def epoch_file(environ: Mapping[str, str], *, namespace: str, pod: str) -> str:
    """Return the path of the file, given the container's whole environment.

    Raises:
        ConfigurationError: the path is not absolute.
    """
    return memory_file(environ, VARIABLE, "epoch", namespace=namespace, pod=pod)


class EpochFile:
    """The file at a path; nothing in its folder can stop the agent.

    Args:
        path: absolute path.
        log: log for failures. To a worker, a missing file means that its epoch is over.
    """

    def __init__(self, path: str, log: Log) -> None:
        self.path = path
        self._log = log
        self._may_exist = True  # an earlier run of the container may have left it

    def write(self, epoch: int) -> None:
        """Store an epoch that is about to run, in decimal digits."""
        self.remove()
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        self._may_exist = True
        try:
            fd = os.open(self.path, flags, 0o644)
            try:
                os.fchmod(fd, 0o644)  # workers of other users read it, regardless of the umask
                os.write(fd, str(epoch).encode())
            finally:
                os.close(fd)
        except OSError as error:
            self._log(
                "the epoch file cannot be written: a worker that reads it saves nothing",
                level="warning",
                file=self.path,
                error=str(error),
            )

    def remove(self) -> None:
        """Remove the file if it exists: no epoch runs."""
        if not self._may_exist:
            return
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108 - pathlib costs memory
            self._may_exist = False
        except OSError as error:
            self._log(
                "the epoch file cannot be removed: it still shows the epoch as current",
                level="error",
                file=self.path,
                error=str(error),
            )
