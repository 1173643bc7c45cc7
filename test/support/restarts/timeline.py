"""Observation of one JobSet and its pods, and the phases of its restarts.

Used by the demo, the end-to-end tests and the real-pod benchmark, so that "running again" has the
same meaning in all of them: every worker of the group was started after the failure. Times are those
of this program's watch, except the workers' start, which comes from the kubelet's container logs
where they can be read (they have nanoseconds; the API has whole seconds).
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path

import attrs

from jobsetpy.api import keys
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client
from support import patience
from support.cluster.follow import following


@attrs.define
class PodStory:
    """Observed states and times of one pod."""

    name: str
    uid: str
    phase: str = ""
    epoch: int = 0
    epoch_at: dict[int, float] = attrs.Factory(dict)
    restarts: int = -1
    worker_running: bool = False
    worker_started: float = 0.0
    worker_ended: float = 0.0
    seen_at: float = 0.0


@attrs.frozen
class Phase:
    """Moment of a restart: seconds since the failure, and the event."""

    at: float
    what: str


class Timeline:
    """Observed states of a JobSet and its pods within ``watching()``.

    Args:
        client: client of the API server.
        namespace, name: the JobSet.
        worker: name of the worker container.
        pod_logs: folder of the kubelets' pod logs (``/var/log/pods`` of each node).
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        *,
        worker: str = "worker",
        pod_logs: Iterable[Path] = (),
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.name = name
        self.worker = worker
        self.pod_logs = tuple(pod_logs)
        self.pods: dict[str, PodStory] = {}
        self.synced: dict[int, float] = {}
        self.deprecated: dict[int, float] = {}
        self.restarts = 0
        self.restarted: dict[int, float] = {}
        self.gone_at = 0.0
        self.terminal = ""
        self.news = patience.News()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch as long as the block lasts."""
        async with (
            following(
                self.client, JobSet, self._jobset, namespace=self.namespace,
                field_selector=f"metadata.name={self.name}",
            ),
            following(
                self.client, Pod, self._pod, namespace=self.namespace,
                label_selector=f"{keys.JOBSET_NAME}={self.name}",
            ),
        ):  # fmt: skip
            yield

    def _jobset(self, obj: JobSet, gone: bool) -> None:
        self.news.set()
        if gone:
            return
        now = time.time()
        self.synced.setdefault(obj.status.synced_epoch, now)
        self.deprecated.setdefault(obj.status.deprecated_epoch, now)
        self.restarts = obj.status.restarts
        self.restarted.setdefault(self.restarts, now)
        self.terminal = obj.status.terminal_state

    def _pod(self, obj: Pod, gone: bool) -> None:
        self.news.set()
        now = time.time()
        name = obj.metadata.name
        if gone:
            self.pods.pop(name, None)
            self.gone_at = now
            return
        story = self.pods.get(name)
        if story is None or story.uid != obj.metadata.uid:
            story = self.pods[name] = PodStory(name=name, uid=obj.metadata.uid, seen_at=now)
        story.phase = obj.status.phase
        epoch = obj.metadata.annotations.get(keys.EPOCH_ANNOTATION, "0")
        if epoch.isdecimal() and int(epoch) != story.epoch:
            story.epoch = int(epoch)
            story.epoch_at[story.epoch] = now
        for status in obj.status.container_statuses:
            if status.name != self.worker:
                continue
            running = status.state.running is not None
            if running and (status.restart_count > story.restarts or not story.worker_running):
                story.worker_started = now
            if not running and story.worker_running:
                story.worker_ended = now
            story.worker_running = running
            story.restarts = max(story.restarts, status.restart_count)

    async def wait(
        self, condition: Callable[[], bool], timeout_s: float, what: str | Callable[[], str]
    ) -> None:
        """Wait until a condition is true; ``what`` describes it if it does not become true in time."""
        try:
            await self.news.until(condition, timeout_s)
        except TimeoutError:
            text = what if isinstance(what, str) else what()
            raise TimeoutError(
                f"waited {timeout_s:.0f} s in vain for {text}; pods: "
                + ", ".join(
                    f"{p.name}: {p.phase}, epoch {p.epoch}, worker "
                    f"{'running' if p.worker_running else 'not running'}"
                    for p in self.pods.values()
                )
            ) from None

    def all_running(self, count: int, epoch: int, since: float = 0.0) -> bool:
        """Return True if ``count`` pods are at ``epoch`` with workers started after ``since``."""
        return (
            len(self.pods) == count
            and epoch in self.synced
            and all(
                p.epoch == epoch and p.worker_running and p.worker_started > since
                for p in self.pods.values()
            )
        )

    def worker_start(self, story: PodStory, since: float) -> float:
        """Return the first start of a pod's worker after ``since``: by its log, else by the watch."""
        moments = [first_line_time(path) for path in self._logs(story)]
        later = [moment for moment in moments if moment is not None and moment > since]
        return min(later) if later else story.worker_started

    def line_times(self, story: PodStory, text: str, since: float) -> list[float]:
        """Return the times after ``since`` of lines ``text`` of a pod's worker (Unix time)."""
        found = []
        for path in self._logs(story):
            for line in path.read_text().splitlines():
                moment, _, rest = line.partition(" stdout F ")
                if rest == text:
                    found.append(log_time(moment) or 0.0)
        return sorted(each for each in found if each > since)

    def _logs(self, story: PodStory) -> list[Path]:
        pattern = f"{self.namespace}_{story.name}_{story.uid}/{self.worker}/*.log"
        return [path for folder in self.pod_logs for path in folder.glob(pattern)]

    def restart_phases(
        self, failed_at: float, epoch: int, started: list[float] | None = None
    ) -> list[Phase]:
        """Return the phases of the restart into ``epoch``, after its end.

        Args:
            failed_at: time of the worker's failure.
            epoch: the new epoch.
            started: start of each pod's worker; by the containers' first lines if absent.
        """
        reported = [p.epoch_at[epoch] for p in self.pods.values()]
        if started is None:
            started = [self.worker_start(p, failed_at) for p in self.pods.values()]
        count = len(self.pods)
        moments = [
            (min(reported), f"first agent is back and reports epoch {epoch}"),
            (self.deprecated[epoch - 1], f"manager deprecates epoch {epoch - 1}"),
            (max(reported), f"last of {count} agents reports epoch {epoch}"),
            (self.synced[epoch], f"manager syncs epoch {epoch}: barriers lift"),
            (min(started), "first worker runs again"),
            (max(started), f"all {count} workers run again"),
        ]
        return [Phase(at - failed_at, what) for at, what in moments]

    def recreation_phases(self, failed_at: float, restarts: int) -> list[Phase]:
        """Return the phases of a restart that recreated all pods, after its end."""
        stories = self.pods.values()
        started = [self.worker_start(p, failed_at) for p in stories]
        moments = [
            (self.restarted[restarts], "manager decides to restart"),
            (self.gone_at, "the last old pod is gone"),
            (max(p.seen_at for p in stories), "the last new pod is created"),
            (min(started), "first worker runs again"),
            (max(started), f"all {len(self.pods)} workers run again"),
        ]
        return [Phase(at - failed_at, what) for at, what in moments]


_LOG_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d+)(Z|[+-]\d\d:\d\d)")


def first_line_time(path: Path) -> float | None:
    """Return the Unix time of a container log's first line (CRI format); ``None`` if it is empty."""
    try:
        with path.open() as lines:
            return log_time(lines.readline())
    except OSError:
        return None


def log_time(line: str) -> float | None:
    """Return the Unix time at the beginning of a line of a container log."""
    match = _LOG_TIME.match(line)
    if match is None:
        return None
    whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    return whole.astimezone(UTC).timestamp() + float("0." + match[2])
