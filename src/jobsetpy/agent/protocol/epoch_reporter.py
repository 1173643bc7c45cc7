"""Writer of the epoch into the agent's own pod; it retries for as long as the API server refuses.

It sends one merge patch per epoch and no read before it, so five thousand agents cost the API
server five thousand requests and not ten. A merge patch has no condition "unless the value is
already higher"; a lower epoch does not replace a higher one for these reasons:

* The epoch comes from a consistent read of the JobSet, and the synced epoch never decreases, so a
  later run of a pod computes the same epoch as an earlier run or a higher one.
* Within a run one patch is in flight at a time, and epochs only increase.
* A patch that the API server delays and applies after the next run's remains possible. Only the API
  server can refuse it, by an admission policy that forbids the annotation to decrease.

The answer to a patch also proves to an agent that its pod still exists. A pod that was given up
with its node is deleted by force while the agent may live on; the group would be complete without
it, at the same epoch. So no worker starts before an answer has confirmed that the pod exists and
stays. Where pods are given up, that patch must have been sent at most a few seconds ago, or after
the barrier lifted. The latter may take any time: the controller counted a pod that existed after
the lift, since a replacement is created later and joins a later epoch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.protocol.settings import Settings
from jobsetpy.agent.protocol.wire_types import Pod
from jobsetpy.aio import Backoff
from jobsetpy.api import agent_keys
from jobsetpy.client import Client
from jobsetpy.errors import (
    ApiError,
    ForbiddenError,
    InvalidError,
    JobSetPyError,
    NotFoundError,
    RetryableApiError,
    UnauthorizedError,
)

FRESH_S: Final = 5.0
"""Maximum age of a patch from before the lift that still confirms a pod which may be given up,
counted from when it was sent. The controller force-deletes a pod no sooner than ten seconds after
its deletion was requested (``reconcilers.lost_nodes.plan.LEAVING_S``). A restart takes less, so it
costs no second patch."""

SLOW_S: Final = 5.0
"""Duration of a patch, in seconds, above which a warning is logged."""

_NOTHING: Final[Mapping[str, str | None]] = {}

_REFUSED: Final = (ForbiddenError, InvalidError, NotFoundError, UnauthorizedError)
"""Answers that need an administrator; they are retried with long pauses."""


def _briefer(about: Mapping[str, str | None]) -> Mapping[str, str | None]:
    """Return the report without the worker's failure text; an empty one if there is no text."""
    cause = about.get(agent_keys.RESTART_CAUSE_ANNOTATION) or ""
    brief, space, _ = cause.partition(" ")
    return {**about, agent_keys.RESTART_CAUSE_ANNOTATION: brief} if space else _NOTHING


class EpochReporter:
    """Writer of the last reported epoch to the API server.

    Args:
        settings: namespace and name of the agent's own pod.
        client: used for the one patch.
        log: log for one line per stored epoch and one per failure.
        rand: source of uniform numbers in [0, 1) for the jitter.
    """

    def __init__(
        self,
        settings: Settings,
        client: Client,
        *,
        log: Log,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._client = client
        self._log = log
        self._rand = rand
        self._wanted = 0
        self._about = _NOTHING
        self._unreported = False
        self._then: Callable[[], None] | None = None
        self.stored = 0
        """Highest epoch of this run that is known to be in the annotation; 0 for none."""
        self._asked_at = -inf
        self._took_s = 0.0
        self._leaving = False
        self._deadline = ""
        self._lift: Callable[[], None] | None = None
        self._lift_at = inf
        self._wake = asyncio.Event()

    @property
    def may_outlive_pod(self) -> bool:
        """Return True if the pod is given up when its node stays unreachable."""
        return bool(self._deadline)

    def report(self, epoch: int, about: Mapping[str, str | None] = _NOTHING) -> None:
        """Request that ``epoch`` is stored; ignored unless it is higher than all earlier ones.

        Args:
            epoch: epoch that the pod has reached.
            about: other annotations, stored in the same patch; ``None`` removes one. They are
                optional: if the API server refuses them, the epoch is stored without them.
        """
        if epoch > self._wanted:
            if epoch > agent_keys.MAX_EPOCH:
                self._log(
                    "no epoch is left: the manager does not count this one; "
                    "delete the JobSet and create it again",
                    level="error",
                    epoch=epoch,
                    highest=agent_keys.MAX_EPOCH,
                )
            self._wanted = epoch
            self._about = about
            self._lift = None
            self._wake.set()

    def repeat(self) -> None:
        """Store the last report once more: etcd was restored, and may have lost it.

        Without it a group whose restart was under way waits for epochs that its agents believe to
        have reported. The JobSet's epochs may be lower than this one then; the manager takes the
        pods' epochs for a restart that it has not seen, and follows them.
        """
        if self._wanted:
            self.stored = 0
            self._wake.set()

    def annotate(
        self, about: Mapping[str, str | None], then: Callable[[], None] | None = None
    ) -> None:
        """Request that annotations are stored with the current epoch, once there is one.

        Args:
            about: the annotations; ``None`` removes one.
            then: called once they are stored, or refused. They are then stored without an epoch, if
                there is none yet.
        """
        self._about = {**self._about, **about}
        self._then = then or self._then
        if self._wanted or self._then is not None:
            self._unreported = True
            self._wake.set()

    def when_confirmed(self, epoch: int, lift: Callable[[], None]) -> None:
        """Call ``lift`` once it is certain that the pod exists, at ``epoch``, and stays.

        In most cases that is immediately: the controller has just seen the annotation, and its
        patch was answered. If the answer was lost, or the patch is too old, another one is sent,
        and ``lift`` waits for its answer. ``lift`` is never called in a pod that is being deleted,
        or once another epoch has been reported.
        """
        self.report(epoch)  # an earlier run of the pod may have reported it
        self._lift = lift
        self._lift_at = asyncio.get_running_loop().time()
        self._try_lift()
        if self._lift is not None:
            self._wake.set()

    def _try_lift(self) -> None:
        lift = self._lift
        if lift is None or self._leaving or self.stored < self._wanted:
            return
        if self.may_outlive_pod and self._asked_at < self._lift_at:
            age = asyncio.get_running_loop().time() - self._asked_at
            if age > FRESH_S:
                return
        self._lift = None
        lift()

    async def run(self) -> None:
        """Send patches until cancelled, regardless of errors from the API server."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._store()

    async def _store(self) -> None:
        """Retry until the reported epoch is stored."""
        soon = Backoff(base=0.1, cap=30.0, rand=self._rand)
        late = Backoff(base=2.0, cap=60.0, rand=self._rand)
        while self.stored < self._wanted or self._unreported or self._is_waiting:
            if self.stored >= self._wanted and not self._unreported:
                await self._wait_to_confirm()
            epoch, asked_at = self._wanted, asyncio.get_running_loop().time()
            unreported, self._unreported = self._unreported, False
            try:
                pod = await self._patch(epoch)
            except JobSetPyError as error:
                self._unreported = self._unreported or unreported
                if isinstance(error, (ForbiddenError, InvalidError)) and any(self._about.values()):
                    # An admission policy may be older than this agent and not allow them.
                    self._about = _briefer(self._about)
                    self._log_failure(epoch, error, 0.0)
                    continue
                retry_after = error.retry_after if isinstance(error, RetryableApiError) else None
                wait = (late if isinstance(error, _REFUSED) else soon).next(retry_after)
                self._log_failure(epoch, error, wait)
                await asyncio.sleep(wait)
            else:
                self._answered(epoch, pod, asked_at)

    async def _wait_to_confirm(self) -> None:
        """Wait before a confirmation: a whole group must not ask a slow server simultaneously."""
        wait = self._took_s * self._rand()
        self._log("confirming that the pod exists", epoch=self._wanted, in_s=round(wait, 3))
        await asyncio.sleep(wait)

    def _answered(self, epoch: int, pod: Pod, asked_at: float) -> None:
        """Process the answer to a patch: the pod as it is stored."""
        self.stored = max(self.stored, epoch)
        self._asked_at = asked_at
        self._took_s = asyncio.get_running_loop().time() - asked_at
        self._deadline = pod.metadata.annotations.deadline
        if epoch:
            self._log("epoch patched", epoch=epoch)
        if self._took_s > SLOW_S:
            self._log(
                "the API server is slow to patch the pod",
                level="warning",
                epoch=epoch,
                seconds=round(self._took_s, 3),
            )
        if pod.metadata.deletion_timestamp is not None and not self._leaving:
            self._leaving = True
            self._log("the pod is being deleted: no worker starts in it", level="warning")
        self._try_lift()
        if self._then is not None and not self._unreported:
            self._then()

    @property
    def _is_waiting(self) -> bool:
        """Return True if the worker waits for a confirmation."""
        return self._lift is not None and not self._leaving

    async def _patch(self, epoch: int) -> Pod:
        stored = {agent_keys.EPOCH_ANNOTATION: str(epoch)} if epoch else {}
        return await self._client.merge_patch(
            Pod,
            self._settings.namespace,
            self._settings.pod_name,
            {"metadata": {"annotations": {**stored, **self._about}}},
        )

    def _log_failure(self, epoch: int, error: JobSetPyError, wait: float) -> None:
        fields: dict[str, object] = {"epoch": epoch, "error": str(error), "retry_s": round(wait, 3)}
        if isinstance(error, ForbiddenError):
            fields["hint"] = (
                "the pod's service account needs the verb patch on pods in "
                f"{self._settings.namespace}, and no admission policy may refuse the annotation"
            )
        elif isinstance(error, ApiError):
            fields["status"] = error.status
        self._log("epoch not stored", level="warning", **fields)
