"""Where a pod has come to without having started its worker, for the agent's next run.

A sidecar that is ended while it waits (by its startup probe, say) is started again alone. Should
the barrier lift meanwhile, the others run and this pod's worker does not: its next run must let it
run at the same epoch, and open no new one for which all others would have to restart. A new process
cannot tell that from a worker that has run and failed, so the one before leaves a note, in memory
that the containers of a pod share and that lasts as long as the pod's sandbox.

Without the note (another runtime, a sandbox made anew) the next run joins the next epoch, which is
always safe.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the pod's own

_MAX: Final = 256


class Arrival:
    """The note: one short line in a file.

    Nothing here raises: whoever cannot leave a note has none.

    Args:
        path: of the file.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> tuple[str, int]:
        """The JobSet's UID and the epoch; ``("", 0)`` if there is no note of our own."""
        try:
            # Where containers share the node's memory, others can put a file or link here.
            number = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return "", 0
        try:
            own = os.fstat(number).st_uid == os.geteuid()
            text = os.read(number, _MAX).decode("ascii", "replace") if own else ""
        except OSError:
            return "", 0
        finally:
            os.close(number)
        uid, _, epoch = text.partition(" ")
        return (uid, int(epoch)) if epoch.isascii() and epoch.isdecimal() else ("", 0)

    def note(self, uid: str, epoch: int) -> str:
        """The pod comes to an epoch of a JobSet, and its worker does not run.

        Returns:
            Why that cannot be noted; "" if it is.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            number = os.open(self._path, flags, 0o600)
            try:
                os.write(number, f"{uid} {epoch}".encode())
            finally:
                os.close(number)
        except OSError as error:
            return str(error)
        return ""

    def forget(self) -> None:
        """The worker may run from now on.

        A note that stays would hide the worker's failure, so it is emptied where it cannot go.
        """
        try:
            os.unlink(self._path)  # noqa: PTH108 - pathlib costs memory
        except FileNotFoundError:
            pass
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self._path, 0)
