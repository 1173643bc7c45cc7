"""Files of credentials that are exchanged while they are in use.

This module is on the agent's start-up path.
"""

from __future__ import annotations

import os


class WatchedFile:
    """Tells whether a file changed since it was last asked; the first time it did.

    Kubernetes swaps a symbolic link to renew mounted files, which shows in the inode.
    """

    __slots__ = ("_seen", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None

    def changed(self) -> bool:
        """Whether it is another one than at the call before.

        Raises:
            OSError: it cannot be looked at.
        """
        found = os.stat(self.path)  # noqa: PTH116 - pathlib costs the agent time and gives nothing
        now = (found.st_mtime_ns, found.st_ino, found.st_size)
        if now == self._seen:
            return False
        self._seen = now
        return True

    def forget(self) -> None:
        """Have the next ``changed`` say yes."""
        self._seen = None

    def read(self) -> str:
        """Its text, which is ASCII."""
        with open(self.path, encoding="ascii") as file:  # noqa: PTH123 - as above
            return file.read()
