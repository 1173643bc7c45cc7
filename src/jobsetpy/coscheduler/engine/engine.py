"""Executor of the gang scheduler's decisions: binds and answers.

It holds bind requests as futures. Binds go through a few workers, so that a gang of thousands of
pods does not open thousands of connections. The gang scheduler is called from event handlers,
requests and timers, always synchronously, hence never concurrently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final, assert_never

import attrs

from jobsetpy import aio
from jobsetpy import runtime as rt
from jobsetpy.aio import Clock, LoopClock
from jobsetpy.coscheduler import metrics
from jobsetpy.coscheduler._settings import CONCURRENT_WRITES, MAX_HELD
from jobsetpy.coscheduler.engine.backlog import Backlog
from jobsetpy.coscheduler.engine.nodes import Nodes, NodeSlice
from jobsetpy.coscheduler.engine.pods import (
    GroupPod,
    Preemptor,
    attempt_of,
    found_no_node,
    seen_pod,
)
from jobsetpy.coscheduler.engine.report import Reporter
from jobsetpy.coscheduler.engine.writes import BindRequest, bind
from jobsetpy.coscheduler.gang_scheduler.scheduler import GangScheduler
from jobsetpy.coscheduler.gang_scheduler.state import Action, Bind, Limits, Outcome, Refuse
from jobsetpy.errors import JobSetPyError
from jobsetpy.informers import Registration
from jobsetpy.reconcilers.coscheduling.plugin import PodGroupKey

ENDING: Final = "this coscheduler is ending: ask again"
_NO_GROUP: Final = "the pod is of no group, and only pods of groups are bound here"


@attrs.frozen
class _Held:
    request: BindRequest
    answer: asyncio.Future[str]


class Engine:
    """Runs the gang scheduler on watched pods and the extender's requests.

    Args:
        client: API client for writes.
        limits: times and limits of gangs.
        clock: clock for all times.
        max_held: maximum held requests.
        ordinary_pods: bind pods that are not in a gang.
        events: recorder for events about gangs.
    """

    def __init__(
        self,
        client: rt.Client,
        *,
        limits: Limits | None = None,
        clock: Clock | None = None,
        max_held: int = MAX_HELD,
        ordinary_pods: bool = True,
        events: rt.EventRecorder | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or LoopClock()
        self._max_held = max_held
        self._ordinary_pods = ordinary_pods
        self._pods: dict[str, GroupPod] = {}
        self._report = Reporter(self._clock, self._pods, events)
        self.nodes = Nodes(self._node_changed)
        self.gang_scheduler = GangScheduler(
            attrs.evolve(limits or Limits(), held=max_held), observer=self._report
        )
        self._held: dict[int, _Held] = {}
        self._held_on: dict[str, set[int]] = {}
        self._bound_on: dict[str, set[str]] = {}
        self._releasing: set[int] = set()
        self._tickets = 0
        self._binds: asyncio.Queue[Bind] = asyncio.Queue()
        self._poked = asyncio.Event()
        self._closed = ""
        self._idle = asyncio.Event()
        self._backlog: Backlog | None = None
        self.knows = asyncio.Event()
        """Set once all objects that existed at the start have been seen."""
        self.knows.set()

    @property
    def held(self) -> int:
        """Number of held requests."""
        return len(self._held)

    def listen(
        self,
        pods: rt.SharedInformer[GroupPod],
        nodes: rt.SharedInformer[NodeSlice] | None = None,
    ) -> list[Registration]:
        """Follow the objects of informers that are synced.

        Without nodes, binds are executed on any node that the scheduler has chosen.

        Existing objects are processed first, by :meth:`run`; no decisions are made until then.
        """
        self.gang_scheduler.pause()
        self.knows.clear()
        backlog = self._backlog = Backlog()
        registrations = []
        if nodes is not None:
            self.nodes.watched = True
            registrations.append(nodes.add_handler(backlog.before(self.nodes.see)))
        registrations.append(pods.add_handler(backlog.before(self.see)))
        return registrations

    async def _catch_up(self) -> None:
        """Process the objects that existed at the start."""
        if self._backlog is not None and not self._closed:
            await self._backlog.forward()
            self._execute(self.gang_scheduler.resume(self._now()))
        self.knows.set()

    # -- pods ---------------------------------------------------------------------------------

    def see(self, old: GroupPod | None, new: GroupPod | None) -> None:
        """Handle a pod before and after a change; ``None`` if it did not or does not exist."""
        if old is not None and (new is None or old.metadata.uid != new.metadata.uid):
            self._forget(old.metadata.uid)
        if new is not None:
            self._seen(new)

    def _seen(self, pod: GroupPod) -> None:
        seen = seen_pod(pod)
        if seen is None:
            if pod.metadata.uid in self._pods:
                self._forget(pod.metadata.uid)
            return
        self._pods[pod.metadata.uid] = pod
        node = pod.spec.node_name
        if node and not seen.ended:
            self._bound_on.setdefault(node, set()).add(pod.metadata.uid)
            # A pod on a deleted node does not run, although its status says so for a while.
            seen = attrs.evolve(seen, ended=node not in self.nodes)
        self._execute(self.gang_scheduler.seen(seen, self._now()))
        if not seen.ended and found_no_node(pod):
            self._execute(self.gang_scheduler.unschedulable(pod.metadata.uid, self._now()))

    def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        node = "" if pod is None else pod.spec.node_name
        if node in self._bound_on:
            self._bound_on[node].discard(uid)
            if not self._bound_on[node]:
                del self._bound_on[node]
        self._execute(self.gang_scheduler.gone(uid, self._now()))

    def _node_changed(self, name: str) -> None:
        """Refuse held binds to a node that may not admit them; pods on deleted nodes do not run."""
        for ticket in list(self._held_on.get(name, ())):
            if ticket not in self._releasing:
                self._execute(self.gang_scheduler.bind_cancelled(ticket, self._now()))
                self._answer(ticket, f"node {name} has changed since it was chosen")
        for uid in list(self._bound_on.get(name, ())):
            self._seen(self._pods[uid])

    def _node_problem(self, request: BindRequest) -> str:
        """Return why a pod of a gang cannot be bound to its node; "" if that exists."""
        if request.uid not in self._pods or request.node in self.nodes:
            return ""
        return f"node {request.node} does not exist"

    # -- the scheduler's requests -------------------------------------------------------------

    async def bind(self, request: BindRequest) -> str:
        """Bind a pod when its gang is complete; may take as long as gangs wait.

        It is cancelled when the client disconnects.

        Returns:
            "" if the pod is bound, else the reason.
        """
        await self.knows.wait()
        for _ in range(2):
            problem = self._obstacle(request)
            if problem:
                return problem
            if self.gang_scheduler.knows(request.uid):
                return await self._ask(request)
            pod = await self._read(request)
            if self._closed:
                return self._closed
            if isinstance(pod, str):
                return pod
            if seen_pod(pod) is not None:
                self._seen(pod)
                continue
            # An ordinary pod is not held.
            return await self._bind(request) if self._ordinary_pods else _NO_GROUP
        return "the pod has ended"

    def _obstacle(self, request: BindRequest) -> str:
        """Return why a request is refused immediately; "" if it is not."""
        if self._closed:
            return self._closed
        pod = self._pods.get(request.uid)
        if pod is None:
            return ""
        if (pod.metadata.namespace, pod.metadata.name) != (request.namespace, request.name):
            metrics.quick_reject("other")
            return "that pod has another name"
        if len(self._held) >= self._max_held:
            metrics.quick_reject("limit")
            return f"{len(self._held)} binds are held already"
        return self._node_problem(request)

    async def _ask(self, request: BindRequest) -> str:
        """Return the answer to a request for a known pod."""
        self._tickets += 1
        ticket = self._tickets
        held = _Held(request, asyncio.get_running_loop().create_future())
        self._held[ticket] = held
        self._held_on.setdefault(request.node, set()).add(ticket)
        metrics.held(len(self._held))
        try:
            actions = self.gang_scheduler.bind_asked(ticket, request.uid, self._now())
            for each in actions:
                if isinstance(each, Refuse) and each.ticket == ticket:
                    why = each.reason.endswith("backs off")
                    metrics.quick_reject("backoff" if why else "other")
            self._execute(actions)
            return await held.answer
        finally:
            cancelled = self._drop_held(ticket) is not None
            metrics.held(len(self._held))
            if cancelled:
                self._execute(self.gang_scheduler.bind_cancelled(ticket, self._now()))

    async def preempt(
        self, victims: Mapping[str, Iterable[str]], preemptor: Preemptor | None = None
    ) -> dict[str, list[str]]:
        """Return the nodes on which pods may be deleted for another one, with the UIDs of all.

        Args:
            victims: UIDs of the pods that would be deleted, by node.
            preemptor: pod that needs the capacity.
        """
        await self.knows.wait()
        if not await self._knows(preemptor):
            metrics.preemption(Outcome.REFUSED)
            return {}
        uid = "" if preemptor is None else preemptor.uid
        answer = self.gang_scheduler.preempt(victims, self._now(), preemptor=uid)
        metrics.preemption(answer.outcome)
        self._execute(answer.actions)
        return answer.nodes

    async def _knows(self, preemptor: Preemptor | None) -> bool:
        """Return whether a pod is known, or in no gang; read it if the watch has not shown it yet.

        Otherwise a pod of a gang that the scheduler has seen first would be taken for an ordinary
        pod, and others deleted for it in vain. Its gang may still be incomplete after that; but
        with its last pod all are known.
        """
        if preemptor is None or not preemptor.labels.name or preemptor.uid in self._pods:
            return True
        pod = await self._read(preemptor)
        if isinstance(pod, str):
            return False
        self._seen(pod)
        return True

    async def _read(self, named: BindRequest | Preemptor) -> GroupPod | str:
        """Return a pod that the watch has not shown, or why there is none."""
        try:
            pod = await self._client.get(GroupPod, named.namespace, named.name)
        except JobSetPyError as error:
            return str(error)
        return pod if pod.metadata.uid == named.uid else "another pod has its name now"

    def count(self) -> None:
        """Set the metrics of the numbers of gangs and pods."""
        counts = self.gang_scheduler.counts()
        metrics.counts(counts.groups, counts.pods)

    # -- execution ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Execute writes and timers until cancelled."""
        async with aio.supervise() as tasks:
            for _ in range(CONCURRENT_WRITES):
                tasks.start(self._write_binds(), name="coscheduler-bind")
            await self._catch_up()
            while True:
                self._poked.clear()
                now = self._now()
                wake = self.gang_scheduler.next_wake(now)
                if wake is not None and wake <= now:
                    self._execute(self.gang_scheduler.tick(now))
                    wake = self.gang_scheduler.next_wake(self._now())
                pause = 60.0 if wake is None else max(0.005, wake - self._now())
                await aio.sleep_or(self._poked, pause)

    def close(self, reason: str = ENDING) -> None:
        """Refuse held and new requests.

        Binds of complete gangs are still executed, as long as :meth:`run` runs: otherwise a gang
        would be left bound in part.
        """
        if not self._closed:
            self._execute(self.gang_scheduler.finish(self._now()))
        self._closed = self._closed or reason
        self.knows.set()  # waiting requests are answered
        for ticket in list(self._held):
            if ticket not in self._releasing:
                self._answer(ticket, self._closed)
        self._check_idle()

    async def finish(self, grace_s: float, reason: str = ENDING) -> None:
        """Close, and wait until the binds of complete groups are done, at most ``grace_s``."""
        self.close(reason)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._idle.wait()
        self.abandon(reason)

    def abandon(self, reason: str) -> None:
        """Answer all held requests without waiting."""
        self._releasing.clear()
        self.close(reason)

    def _check_idle(self) -> None:
        if self._closed and not self._releasing:
            self._idle.set()

    def _execute(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Bind(ticket):
                    self._releasing.add(ticket)
                    self._binds.put_nowait(action)
                case Refuse(ticket, _, reason):
                    self._answer(ticket, reason)
                case _:
                    assert_never(action)
        self._poked.set()

    def _drop_held(self, ticket: int) -> _Held | None:
        held = self._held.pop(ticket, None)
        if held is not None:
            tickets = self._held_on[held.request.node]
            tickets.discard(ticket)
            if not tickets:
                del self._held_on[held.request.node]
        return held

    def _answer(self, ticket: int, text: str) -> None:
        held = self._drop_held(ticket)
        if held is None:
            return
        if not held.answer.done():
            held.answer.set_result(text)

    async def _write_binds(self) -> None:
        while True:
            bind = await self._binds.get()
            held = self._held.get(bind.ticket)
            if held is not None:
                error = await self._bind(held.request)
            else:
                # Without the request the reservation is gone: the node may be assigned to another
                # pod.
                error = "cancelled"
                self._report.bind_over(self._group_of(bind.uid))
            done = self.gang_scheduler.bind_done(bind.uid, ok=not error, now=self._now())
            self._releasing.discard(bind.ticket)
            self._answer(bind.ticket, error)
            self._execute(done)
            self._check_idle()

    async def _bind(self, request: BindRequest) -> str:
        began, error_text = self._now(), self._node_problem(request)
        try:
            if not error_text:
                await bind(self._client, request)
        except JobSetPyError as error:
            error_text = str(error)
        group = self._group_of(request.uid)
        self._report.bind_done(group, self._now() - began, error=error_text)
        return error_text

    def _group_of(self, uid: str) -> PodGroupKey | None:
        pod = self._pods.get(uid)
        return None if pod is None else attempt_of(pod)

    def _now(self) -> float:
        return self._clock.monotonic()
