"""Credential files that are replaced while they are in use.

This module is on the agent's start-up path.
"""

from __future__ import annotations

import os


class WatchedFile:
    """Detector of changes of a file.

    Kubernetes replaces a symbolic link to renew mounted files, which changes the inode.
    """

    __slots__ = ("_seen", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        """Return true if the file changed since the last call, and at the first call.

        Raises:
            OSError: the file's status cannot be read.
        """
        found = os.stat(self.path)  # noqa: PTH116 - pathlib costs the agent time and gives nothing
        now = (found.st_mtime_ns, found.st_ino, found.st_size)
        if now == self._seen:
            return False
        self._seen = now
        return True

    def forget(self) -> None:
        """Make the next ``changed`` return True."""
        self._seen = None

    def read(self) -> str:
        """Return the file's text, which is ASCII."""
        with open(self.path, encoding="ascii") as file:  # noqa: PTH123 - as above
            return file.read()
