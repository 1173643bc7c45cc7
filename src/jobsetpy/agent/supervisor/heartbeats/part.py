"""Heartbeats as a part: the ring of the group, and the fence that relies on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobsetpy.agent.supervisor.heartbeats.ring import Ring
from jobsetpy.agent.supervisor.heartbeats.rules import Motion, RingRules, motion_of
from jobsetpy.agent.supervisor.heartbeats.self_fence import SelfFence, fence_after
from jobsetpy.agent.supervisor.part import Part, Services
from jobsetpy.agent.supervisor.worker.rules import Phase
from jobsetpy.api import agent_keys

if TYPE_CHECKING:
    from jobsetpy.agent.protocol.wire_types import JobSetStatus
    from jobsetpy.aio import Supervisor as Tasks


class Heartbeats(Part):
    """Sends heartbeats, reports silent neighbours, and kills a worker that is cut off.

    Args:
        services: what the supervisor's parts share.
        rules: the pod's part of the ring.
    """

    def __init__(self, services: Services, rules: RingRules) -> None:
        self._services = services
        self._ring = Ring(
            rules,
            jobset_uid=services.settings.jobset_uid,
            log=services.log,
            motion=self._motion,
            on_report=lambda: services.reporter.annotate(self.annotations()),
        )
        self._fence = SelfFence(
            services.client,
            services.progress.path,
            lambda: self._ring.heard_at,
            fence_after(silent_s=rules.silent_s, interval_s=rules.interval_s),
            self._cut_off,
        )

    def _motion(self) -> Motion:
        runs = self._services.worker.phase is Phase.RUNNING
        return motion_of(*self._services.progress.pace(), runs=runs)

    def begin(self, tasks: Tasks) -> None:  # noqa: ARG002 - the ring has a thread of its own
        """Open the socket and start to send."""
        self._ring.start()

    def see_status(self, status: JobSetStatus) -> None:
        """Pass the epochs on: neighbours are watched while workers run."""
        self._ring.see(status.synced_epoch, status.deprecated_epoch)

    def annotations(self) -> dict[str, str | None]:
        """Return the annotation about neighbours that are silent."""
        return {agent_keys.UNHEARD_ANNOTATION: self._ring.report}

    def worker_starting(self) -> None:
        """Watch the worker, with its empty progress file."""
        self._fence.started()

    def worker_killed(self) -> None:
        """Stop the fence: nothing is left to be killed."""
        self._fence.stop()

    def close(self) -> None:
        """Tell the neighbours that no other beat follows, and stop."""
        self._ring.close()
        self._fence.stop()

    def _cut_off(self, seconds: float) -> None:
        """Kill a worker that is cut off from everything: its rank may be given to another pod."""
        text = "neither the API server nor a neighbour answers"
        self._services.log(
            "the pod is cut off, and its worker makes no progress: it is killed",
            level="error",
            seconds=round(seconds, 1),
            why=text,
        )
        self._services.cause.no_progress(seconds, text)
        self._services.act(self._services.worker.deprecated(replaced=True))
