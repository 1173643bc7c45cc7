"""Carries out what the planner of coscheduling decides: gates, binds, answers.

It holds requests for binds as futures. All writes go through a few workers, so that a group of
thousands of pods does not open thousands of connections; the planner itself is called from event
handlers, requests and timers, always synchronously, hence one at a time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, assert_never

import attrs

from jobsetpy import aio
from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.api import keys
from jobsetpy.client import HttpRequest
from jobsetpy.coscheduler._pods import SEEN_MARK, GroupPod, new_failure, seen_pod
from jobsetpy.domain.coscheduling_planner import GroupPlanner
from jobsetpy.domain.coscheduling_state import Action, Bind, Lift, LookUp, Refuse
from jobsetpy.errors import JobSetPyError, NotFoundError

_LIFT_AGAIN_S: Final = 1.0
"""After a gate could not be taken off; the client has tried several times by then."""


@attrs.frozen(kw_only=True)
class BindRequest:
    """What the scheduler asks for.

    Args:
        namespace: of the pod.
        name: of the pod.
        uid: of the pod; only that very pod is bound.
        node: where to.
    """

    namespace: str
    name: str
    uid: str
    node: str


@attrs.frozen
class _Held:
    request: BindRequest
    answer: asyncio.Future[str]


@attrs.frozen
class _Mark:
    """Have the scheduler's next message be a new one."""

    pod: GroupPod
    at: int
    message: str


class Engine:
    """The planner, its pods and its requests.

    Args:
        client: writes.
        planner: decides.
        clock: time.
        workers: so many writes are in progress at once.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        planner: GroupPlanner | None = None,
        clock: Clock | None = None,
        workers: int = 32,
    ) -> None:
        self._client = client
        self._planner = planner or GroupPlanner()
        self._clock = clock or LoopClock()
        self._workers = workers
        self._pods: dict[str, GroupPod] = {}
        self._held: dict[int, _Held] = {}
        self._tickets = 0
        self._work: asyncio.Queue[Lift | Bind | _Mark] = asyncio.Queue()
        self._poked = asyncio.Event()

    @property
    def planner(self) -> GroupPlanner:
        """For looking at."""
        return self._planner

    @property
    def held(self) -> int:
        """How many requests wait for their answer."""
        return len(self._held)

    # -- pods, as an informer's handler -------------------------------------------------------

    def on_add(self, obj: GroupPod, *, initial: bool) -> None:  # noqa: ARG002 - protocol
        """A pod is new."""
        self._seen(obj)

    def on_update(self, old: GroupPod, new: GroupPod) -> None:
        """A pod has changed, or another one has its name now."""
        if old.metadata.uid != new.metadata.uid:
            self._gone(old.metadata.uid)
        self._seen(new)

    def on_delete(self, obj: GroupPod, *, final_state_known: bool) -> None:  # noqa: ARG002
        """A pod is gone, or of no group any more."""
        self._gone(obj.metadata.uid)

    def _seen(self, pod: GroupPod) -> None:
        told = seen_pod(pod)
        if told is None:
            self._gone(pod.metadata.uid)
            return
        self._pods[pod.metadata.uid] = pod
        self._act(self._planner.seen(told, self._now()))
        failure = None if told.ended else new_failure(pod)
        if failure is not None:
            self._work.put_nowait(_Mark(pod, *failure))
            self._act(self._planner.unschedulable(pod.metadata.uid, self._now()))

    def _gone(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._act(self._planner.gone(uid, self._now()))

    # -- the scheduler's requests -------------------------------------------------------------

    async def bind(self, request: BindRequest) -> str:
        """Bind a pod when its group is complete; may take as long as groups wait.

        Being cancelled means that whoever asked is gone.

        Returns:
            "" if the pod is bound, else why it is not.
        """
        for _ in range(2):
            self._tickets += 1
            ticket = self._tickets
            held = _Held(request, asyncio.get_running_loop().create_future())
            self._held[ticket] = held
            try:
                actions = self._planner.bind_asked(ticket, request.uid, self._now())
                unknown = any(isinstance(each, LookUp) for each in actions)
                self._act(actions)
                if not unknown:
                    return await held.answer
            finally:
                if self._held.pop(ticket, None) is not None:
                    self._act(self._planner.bind_cancelled(ticket, self._now()))
            try:
                pod = await self._client.get(GroupPod, request.namespace, request.name)
            except JobSetPyError as error:
                return str(error)
            if pod.metadata.uid != request.uid:
                return "another pod has its name now"
            if seen_pod(pod) is None:
                return await self._bind(request)  # an ordinary pod: none of our business
            self._seen(pod)
        return "the pod has ended"

    def preempt(self, victims: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
        """The nodes on which pods may be deleted for another one, with the UIDs of all of them."""
        nodes, actions = self._planner.preempt(victims, self._now())
        self._act(actions)
        return nodes

    # -- carrying out -------------------------------------------------------------------------

    async def run(self) -> None:
        """Write, and let time pass, until cancelled."""
        async with aio.supervise() as tasks:
            for _ in range(self._workers):
                tasks.start(self._write(), name="coscheduler-write")
            while True:
                self._poked.clear()
                now = self._now()
                wake = self._planner.next_wake(now)
                if wake is not None and wake <= now:
                    self._act(self._planner.tick(now))
                    wake = self._planner.next_wake(self._now())
                pause = 60.0 if wake is None else max(0.005, wake - self._now())
                await aio.sleep_or(self._poked, pause)

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Lift() | Bind():
                    self._work.put_nowait(action)
                case Refuse(ticket, _, reason):
                    self._answer(ticket, reason)
                case LookUp():
                    pass  # whoever asked sees to it
                case _:
                    assert_never(action)
        self._poked.set()

    def _answer(self, ticket: int, text: str) -> None:
        held = self._held.pop(ticket, None)
        if held is not None and not held.answer.done():
            held.answer.set_result(text)

    async def _write(self) -> None:
        while True:
            work = await self._work.get()
            match work:
                case Lift():
                    await self._lift(work)
                case Bind(ticket, uid):
                    held = self._held.get(ticket)
                    # Without the request the reservation is gone: the node may be another's.
                    error = "cancelled" if held is None else await self._bind(held.request)
                    done = self._planner.bind_done(uid, ok=not error, now=self._now())
                    self._answer(ticket, error)
                    self._act(done)
                case _Mark():
                    await self._mark(work)
                case _:
                    assert_never(work)

    async def _lift(self, lift: Lift) -> None:
        pod = self._pods.get(lift.uid)
        if pod is None:
            return
        others = [g.name for g in pod.spec.scheduling_gates if g.name != keys.COSCHEDULING_GATE]
        # The UID keeps it from any other pod; gates that are gone meanwhile cannot come back.
        body: dict[str, Any] = {
            "metadata": {"uid": lift.uid},
            "spec": {"schedulingGates": [{"name": name} for name in others] or None},
        }
        try:
            await self._client.merge_patch(GroupPod, pod.metadata.namespace, lift.name, body)
        except NotFoundError:
            return
        except JobSetPyError:
            await asyncio.sleep(_LIFT_AGAIN_S)
            self._act(self._planner.lift_failed(lift.uid, self._now()))

    async def _bind(self, request: BindRequest) -> str:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": request.name, "uid": request.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": request.node},
        }
        pods = f"/api/v1/namespaces/{request.namespace}/pods"
        try:
            await self._client.raw(
                HttpRequest(
                    method="POST",
                    path=f"{pods}/{request.name}/binding",
                    body=json.dumps(body).encode(),
                )
            )
        except JobSetPyError as error:
            return str(error)
        return ""

    async def _mark(self, mark: _Mark) -> None:
        meta = mark.pod.metadata
        path = f"/status/conditions/{mark.at}"
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": f"{path}/type", "value": "PodScheduled"},
            {"op": "test", "path": f"{path}/message", "value": mark.message},
            {"op": "replace", "path": f"{path}/message", "value": SEEN_MARK + mark.message},
        ]
        # If it fails, the next failure is seen later, or the group's timeout does its work.
        with suppress(JobSetPyError):
            await self._client.json_patch(
                GroupPod, meta.namespace, meta.name, operations, subresource="status"
            )

    def _now(self) -> float:
        return self._clock.monotonic()
