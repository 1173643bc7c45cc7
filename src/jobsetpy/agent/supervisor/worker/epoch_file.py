"""File that holds the running epoch, from which a worker learns that its epoch is over.

A pod that is cut off from its node's network may still reach shared storage while another pod has
its rank. Its worker can compare the file with its own ``JOBSET_EPOCH`` immediately before it makes
a checkpoint valid. The agent writes the file before it starts a worker, and removes it before it
kills one. A worker that is asked to stop keeps it for its grace period, since what it saves then
counts: the manager waits for it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from jobsetpy.agent.protocol.log import Log

VARIABLE: Final = "JOBSET_EPOCH_FILE"
"""Variable with the path of the file, for the worker. A value set by the container is kept."""


def write_new(path: str, text: str) -> None:
    """Write a file in place of an older one; workers of all users may read it.

    Raises:
        OSError: it cannot be written.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - pathlib costs memory
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, 0o644)  # regardless of the umask
        file.write(text)


class EpochFile:
    """The file at a path; nothing in its folder can stop the agent.

    Args:
        path: absolute path.
        log: log for failures. To a worker, a missing file means that its epoch is over.
    """

    def __init__(self, path: str, log: Log) -> None:
        self.path = path
        self._log = log

    def write(self, epoch: int) -> None:
        """Store an epoch that is about to run, in decimal digits."""
        try:
            write_new(self.path, str(epoch))
        except OSError as error:
            self._log(
                "the epoch file cannot be written: a worker that reads it saves nothing",
                level="warning",
                file=self.path,
                error=str(error),
            )

    def remove(self) -> None:
        """Remove the file if it exists: no epoch runs."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.path)  # noqa: PTH108 - pathlib costs memory
        except OSError as error:
            self._log(
                "the epoch file cannot be removed: it still shows the epoch as current",
                level="error",
                file=self.path,
                error=str(error),
            )
