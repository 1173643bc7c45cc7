"""Epoch that a pod has reached without having started its worker, saved for the agent's next run.

A sidecar that ends while it waits (killed by its startup probe, for example) is restarted alone. If
the barrier lifts meanwhile, the others run and this pod's worker does not: the sidecar's next run
must let it run at the same epoch, and not join a new one, for which all others would have to
restart. A new process cannot distinguish that from a worker that has run and failed, so the
previous one saves its epoch in memory that the containers of a pod share and that lasts as long as
the pod's sandbox.

Without the saved epoch (another runtime, a recreated sandbox) the next run joins the next epoch,
which is always safe.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the pod's own

_MAX: Final = 256


class Arrival:
    """File with the saved epoch, one short line.

    No method raises: an epoch that cannot be saved is not saved.

    Args:
        path: path of the file.
    """

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> tuple[str, int]:
        """Return the JobSet's UID and the epoch; ``("", 0)`` if this user has saved none."""
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
        """Save the epoch of a JobSet that the pod reaches while its worker does not run.

        Returns:
            The error if it cannot be saved; "" if it is.
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
        """Delete the saved epoch: the worker may run from now on.

        A leftover would hide the worker's failure, so the file is emptied if it cannot be removed.
        """
        try:
            os.unlink(self._path)  # noqa: PTH108 - pathlib costs memory
        except FileNotFoundError:
            pass
        except OSError:
            with contextlib.suppress(OSError):
                os.truncate(self._path, 0)
