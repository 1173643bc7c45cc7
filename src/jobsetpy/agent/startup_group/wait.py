"""``wait-for-group``: init container that ends once its startup group has started (KEP-498).

It watches the group's ConfigMap and reads a mounted copy of it, and uses whichever is released
first: the watch within milliseconds, the mount within about a minute. Without permission to watch,
or without an API server, the mount alone is enough.

The value names the released attempt (``api.group_signal``); one that is older than the pod's own
attempt releases nothing. So a container that runs again, as all do when a pod restarts in place,
ends immediately.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Never

import msgspec

from jobsetpy.agent.protocol import follower
from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import ApiSettings, api_fields, given_in, number_of
from jobsetpy.agent.protocol.wire_types import Resource
from jobsetpy.aio import supervise
from jobsetpy.api.group_signal import (
    MOUNT_PATH,
    STARTED,
    WAITING,
    Progress,
    config_map_name,
    lifted_attempt,
    progress_of,
    timed_out_message,
)
from jobsetpy.api.structs import Metadata
from jobsetpy.client import Client
from jobsetpy.errors import TransportError
from jobsetpy.informers._events import Applied, Listed, WatchEvent
from jobsetpy.informers._watcher import Watcher

EXIT_TIMED_OUT: Final = 1
"""Exit code after the timeout: the pod fails, and the JobSet's failure policy applies."""

BACKOFF_S: Final = 0.5
"""Maximum first wait after a failure, in seconds; long, as a whole group may fail."""

LOOK_EVERY_S: Final = 1.0
"""Interval in seconds between reads of the mounted file."""

TERMINATION_LOG: Final = "/dev/termination-log"

_HIGHEST: Final = 2**31 - 1
"""Maximum of a count or a time, as in the CRD."""

_REQUIRED: Final = ("NAMESPACE", "JOBSET_NAME", "JOBSET_UID", "GROUP_ATTEMPT")


class ConfigMap(msgspec.Struct, frozen=True):
    """ConfigMap, as far as the agent reads it."""

    RESOURCE: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    metadata: Metadata
    data: dict[str, str] | None = None


class Settings(ApiSettings, frozen=True, kw_only=True):
    """Settings of the wait; without ``api_host`` the mount alone is read.

    Args:
        attempt: attempt of the pod.
        size: size of the group, for messages; "" if unknown.
        timeout_s: timeout in seconds; ``None`` for none.
        mount: folder where the ConfigMap is mounted.
        termination_log: file for the termination message.
    """

    attempt: int
    size: str = ""
    timeout_s: int | None = None
    mount: str = MOUNT_PATH
    termination_log: str = TERMINATION_LOG


def load(environ: Mapping[str, str]) -> Settings:
    """Read the settings; an empty variable counts as unset.

    Raises:
        ConfigurationError: something required is missing, or a value cannot be used.
    """
    given = given_in(environ, _REQUIRED)
    return Settings(
        **api_fields(given),
        attempt=number_of(given, "GROUP_ATTEMPT", 0, 0, _HIGHEST),
        size=given.get("GROUP_SIZE", ""),
        timeout_s=number_of(given, "GROUP_TIMEOUT", 0, 0, _HIGHEST) or None,
        mount=given.get("GROUP_MOUNT", MOUNT_PATH),
        termination_log=given.get("TERMINATION_LOG", TERMINATION_LOG),
    )


class GroupWait:
    """Wait for the release of a startup group.

    Args:
        settings: names the group and the timeout.
        client: client with the pod's own service account; ``None`` to read the mount only.
        log: log for one line per transition.
        start: start of the container on ``time.monotonic()``; ``None`` for that of the wait.
    """

    def __init__(
        self,
        settings: Settings,
        client: Client | None,
        *,
        log: Log,
        start: float | None = None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._log = log
        self._start = start
        self._progress: Progress | None = None
        self._released: asyncio.Queue[str] = asyncio.Queue()
        """Ways by which the release was seen."""

    def look(self) -> bool:
        """Read the mount and return True if the group is released."""
        return self._take({name: self._read(name) for name in (STARTED, WAITING)})

    def on_events(self, events: Sequence[WatchEvent[ConfigMap]]) -> None:
        """Process a batch of watch events; values only increase, so their order does not matter."""
        for event in events:
            if isinstance(event, Listed | Applied) and self._take(event.obj.data or {}):
                self._released.put_nowait("watch")

    async def run(self) -> int:
        """Wait.

        Returns:
            0 once the group is released, :data:`EXIT_TIMED_OUT` after the timeout.
        """
        limit = self._settings.timeout_s
        elapsed = 0.0 if self._start is None else time.monotonic() - self._start
        left = None if limit is None else max(0.0, limit - elapsed)
        try:
            async with asyncio.timeout(left), supervise() as tasks:
                if self._client is not None:
                    tasks.start(self._watcher(self._client).run(self.on_events), name="watch")
                tasks.start(self._keep_looking(), name="look")
                self._log("waiting", attempt=self._settings.attempt, size=self._settings.size)
                path = await self._released.get()
        except TimeoutError:
            return self._give_up()
        self._log("released", path=path)
        return 0

    async def _keep_looking(self) -> Never:
        while True:
            if self.look():
                self._released.put_nowait("volume")
            await asyncio.sleep(LOOK_EVERY_S)

    def _watcher(self, client: Client) -> Watcher[ConfigMap]:
        name = config_map_name(self._settings.jobset_name)
        hint = (
            "the pod's service account needs the verbs list and watch on the ConfigMap "
            f"{name}; until then, the mounted volume reports it a minute later"
        )
        observer = follower.WatchLog(self._log, hint)
        return follower.watch_one(
            client, ConfigMap, self._settings, name, observer, backoff_base_s=BACKOFF_S
        )

    def _take(self, data: Mapping[str, str | None]) -> bool:
        settings = self._settings
        received = progress_of(data.get(WAITING), settings.jobset_uid, settings.attempt)
        if received is not None and (
            self._progress is None or received.time >= self._progress.time
        ):
            self._progress = received
        return lifted_attempt(data.get(STARTED), settings.jobset_uid) >= settings.attempt

    def _read(self, name: str) -> str | None:
        try:
            return Path(self._settings.mount, name).read_text()
        except (OSError, UnicodeDecodeError):
            return None

    def _give_up(self) -> int:
        settings = self._settings
        message = timed_out_message(settings.timeout_s or 0, self._progress, settings.size)
        self._log("timed out", level="error", message=message)
        try:
            Path(settings.termination_log).write_text(message)
        except OSError as error:
            self._log("no termination log", level="warning", error=str(error))
        return EXIT_TIMED_OUT


def connect(settings: Settings) -> Client | None:
    """Return a client with the pod's own service account; ``None`` without an API server."""
    if not settings.api_host or not Path(settings.service_account_dir, "token").exists():
        return None
    try:
        return follower.connect(settings)
    except (TransportError, ValueError):
        return None


def wait(environ: Mapping[str, str], *, log: Log, start: float) -> int:
    """Wait as the environment configures it; without an event loop if the mount shows the release.

    Args:
        environ: the settings.
        log: log for one line per transition.
        start: time of the process's start on ``time.monotonic()``.

    Returns:
        Exit code, as :meth:`GroupWait.run`.

    Raises:
        ConfigurationError: a value is missing or cannot be used.
    """
    settings = load(environ)
    if GroupWait(settings, None, log=log).look():
        log("released", path="volume")
        return 0
    # The client is not closed, because the process then ends.
    return asyncio.run(GroupWait(settings, connect(settings), log=log, start=start).run())
