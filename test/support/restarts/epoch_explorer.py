"""Every order of events of a small group that restarts in place, with a bounded number of faults.

A state holds the API server's JobSet and pods, each agent with its worker, and the managers with
the changes that their watches have not sent yet. From each state every possible next event is tried.
The decisions are the project's own (see ``epoch_steps``); kubelet, Job controller and network are
models:

* A watch sends changes in order, any time later. A manager's pod watch holds at most ``lag``
  changes back.
* ``sidecar``: if any container ends, the kubelet ends the others, then starts the agent again. The
  worker starts some time after the probe has succeeded, even if the agent has ended since. An agent
  that ends with 0 is restarted alone, and finds the epoch that it has stored. The kubelet reports a
  worker's state any time later, or not at all.
* ``supervisor``: the agent starts and stops the worker; its container ends only if it crashes.
  ``standby``: the same, and each agent may have a standby process, which becomes ready or ends at
  any time, also unnoticed while it is being started. A started one continues only later, and counts
  as running from the start: whatever happens meanwhile must end it as any other worker. With several
  ``processes`` in a pod, each has its standby process, and some continue while others are started.
* A worker that hangs may report where it is, and is killed sooner or later.
* A pod that is deleted continues until it is gone; only then it is replaced.
* The patch of an agent that ends may be stored later, or never.

Faults: a worker fails, an agent crashes, a pod is deleted or its node lost, another client writes
the JobSet, and a second manager takes over while the first one does not know yet and makes one more
pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from support.restarts.epoch_steps import (
    Version,
    View,
    next_round,
    observe,
    reconcile,
    see_pod,
    standby_step,
    worker_step,
)
from support.restarts.state_graph import StateGraph, Violation

DRAINED = 3
ENDED = ("done", "saved")
BUDGET = 100


class Process(NamedTuple):
    """One process of a supervisor's worker; for a sidecar, the worker.

    ``runs`` is the epoch that it runs at, 0 if there is none. ``standby`` is a ``StandbyPhase``, or
    "broken" if it has ended unnoticed. ``line`` is the epoch at which a standby process was ordered
    to run, as long as it has not read it.
    """

    runs: int = 0
    standby: str = "none"
    line: int = 0


class Pod(NamedTuple):
    """One pod.

    Attributes:
        epoch: epoch that is stored.
        agent: state of its barrier, ``()`` without a process.
        seen: number of the state's versions of the JobSet that the agent has observed.
        patch: epoch that the agent is about to store.
        late: patch of an agent that has ended.
        note: epoch that a sidecar stores for its next run until a worker may start.
        worker: for a sidecar "none", "probed" (about to start), "running" or "failed"; for a
            supervisor a ``Phase``.
        processes: processes of the worker, which are alike, and sorted.
        reported: state of the worker that the kubelet has reported.
        deleting: 1 while the pod is being deleted, 2 if it was asked to leave, 3 (``DRAINED``) if
            its program saves its work and ends with 0, and a manager removes the finalizer, 4 if its
            kubelet has ended it so without a deletion.
        starts: number of starts of the agent.
        code: exit code of its latest run.
        cause: exit code of the run before its latest start.
        strange: number of crashes of a container that the JobSet does not name.
        restarts: restarts that the kubelet has reported: of the agent, whether the latest one was
            for a failure, and of that container; and the number of ends that the agent has reported
            before, since its kubelet had forgotten its probe.
    """

    epoch: int = 0
    agent: tuple[Any, ...] = ()
    seen: int = 0
    patch: int = 0
    late: int = 0
    note: int = 0
    worker: str = "none"
    processes: tuple[Process, ...] = (Process(),)
    reported: str = "n"
    deleting: int = 0
    starts: int = 0
    code: int = 0
    cause: int = 0
    strange: int = 0
    restarts: tuple[int, bool, int, int] = (0, False, 0, 0)

    @property
    def runs(self) -> int:
        """Epoch of its oldest process, 0 if none runs."""
        return min((each.runs for each in self.processes if each.runs), default=0)

    def each_runs(self, epoch: int) -> bool:
        """Return True if all processes run at an epoch."""
        return all(each.runs == epoch for each in self.processes)


class Manager(NamedTuple):
    """One manager: its view, the newest versions that it has observed and written, and pending work.

    ``due`` is True if a pass is due; ``queue`` are changes of pods that its watch has not sent.
    """

    view: View
    seen: int
    wrote: int = 0
    due: bool = True
    queue: tuple[tuple[int, tuple[Any, ...]], ...] = ()


class State(NamedTuple):
    """Whole state. ``versions`` begins with the oldest that not all have observed yet.

    ``idle`` is True if the JobSet's Job is suspended; ``skew_h`` are the hours by which the wall
    clock of the manager is ahead.
    """

    versions: tuple[Version, ...]
    pods: tuple[Pod | tuple[()], ...]
    manager: Manager
    old: Manager | tuple[()] = ()
    faults: int = 0
    failures: int = 0
    left: int = 0
    idle: bool = False
    skew_h: int = 0


class Explorer(StateGraph):
    """Graph of all states.

    Args:
        mode: "sidecar", "supervisor", or "standby" for a supervisor with standby processes.
        pods: number of pods.
        faults: maximum number of faults on one way.
        kinds: kinds of faults: "fail", "hang", "crash", "delete", "write", "takeover", and some that
            must cost nothing: "quit" (a probe ends a sidecar), "forget" (a sidecar ends itself and all
            containers of its pod, since its kubelet has restarted), "stranger" (a container that the
            JobSet does not name crashes), "succeed" (a worker does).
            With "suspend", the JobSet is suspended, and resumed any time later: its Job follows,
            and the programs of its pods save their work and end with 0. It costs nothing.
            With "clock", the manager's wall clock is set, hours back or ahead, and back-offs are
            stored.
            With "ask", a user requests a restart, with "leave" a pod is asked to leave its node;
            both cost nothing.
            With "late", a manager may check for missing pods, once its caches are up to date.
        budget: ``maxRestarts``. If it is small, restarts of containers are counted, and pods are
            no longer alike, since a crash is stored with its pod's name.
        first: kind of the first fault on a way; any if empty. The slices of all kinds together are
            the whole.
        lag: maximum number of pod changes that a manager's watch holds back.
        early: whether the kubelet reports workers, so that failures may be detected early.
        late: whether patches of agents that have ended may be stored later.
        processes: number of processes of each worker.
    """

    def __init__(  # noqa: PLR0913 - bounds, each of its own
        self,
        mode: str,
        *,
        pods: int = 2,
        faults: int = 2,
        kinds: frozenset[str] = frozenset({"fail", "crash", "delete", "write", "takeover"}),
        first: str = "",
        lag: int = 3,
        early: bool = True,
        late: bool = True,
        budget: int = BUDGET,
        processes: int = 1,
    ) -> None:
        super().__init__()
        self.mode = "supervisor" if mode == "standby" else mode
        self.standby = mode == "standby"
        self.size = pods
        self.idle = (Process(),) * processes
        self.faults = faults
        self.kinds = kinds
        self.first = frozenset({first}) if first else kinds
        self.lag = lag
        self.early = early and mode == "sidecar"
        self.late = late
        self.budget = budget
        self.counts = budget < BUDGET

    def start(self) -> State:
        """Return the state of a JobSet whose pods have just been created."""
        pods = tuple(self._new_pod() for _ in range(self.size))
        cached = tuple(_cached(pod) for pod in pods)
        view = View(cached, (True,) * self.size)
        return State((Version(),), pods, Manager(view, 1))

    def described(self, state: State) -> list[str]:
        """Return the versions, the pods and the managers."""
        pods = [f"  pod {pod}" for pod in state.pods]
        versions = f"  versions {[v[:2] for v in state.versions]}"
        return [versions, *pods, f"  {state.manager}", f"  {state.old}"]

    def canonical(self, state: State) -> State:
        """Return the state without versions that all have observed, and without an order of pods."""
        versions, pods, manager, old, *counts = state
        order = _order(pods, manager, old) if len(pods) > 1 and not self.counts else []
        if order != sorted(order):
            place_of = {slot: place for place, slot in enumerate(order)}
            pods = tuple(pods[i] for i in order)
            manager = _reordered(manager, order, place_of)
            if old:
                old = _reordered(old, order, place_of)
        seen = [manager.seen, *(pod.seen for pod in pods if pod and pod.agent)]
        if old:
            seen.append(old.seen)
        # Versions that all have observed are dropped, except the latest.
        gone = min(*seen, len(versions)) - 1
        if gone > 0:
            versions = versions[gone:]
            manager = manager._replace(seen=manager.seen - gone, wrote=max(0, manager.wrote - gone))
            if old:
                old = old._replace(seen=old.seen - gone, wrote=max(0, old.wrote - gone))
            pods = tuple(
                pod._replace(seen=pod.seen - gone) if pod and pod.agent else pod for pod in pods
            )
        return State(versions, pods, manager, old, *counts)

    def is_goal(self, state: State) -> bool:
        """Return True if all workers run at one epoch, or the JobSet has failed."""
        newest = state.versions[-1]
        if newest.suspended or state.idle or newest.turns % 2:
            return False
        if newest.failed:
            return True  # rightly: that was checked when it was written
        if newest.requests and dict(newest.record).get("servedRequest") != str(newest.requests):
            return False
        return newest.deprecated < newest.synced and all(
            (pod and pod.worker == "running" and pod.each_runs(newest.synced) and not pod.deleting)
            or (pod and pod.worker == "done")
            for pod in state.pods
        )

    # ---- events ----------------------------------------------------------------------------------

    @property
    def _no_worker(self) -> str:
        return "none" if self.mode == "sidecar" else "waiting"

    def _new_pod(self) -> Pod:
        return Pod(worker=self._no_worker, processes=self.idle)

    def next_states(self, state: State) -> Iterator[tuple[str, bool, State]]:
        """Yield each possible next event: its name, if it is a fault, and the state after it."""
        full = len(state.manager.queue) >= self.lag
        for slot, pod in enumerate(state.pods):
            name = f"p{slot}"
            if not pod:
                if not full and not state.idle:
                    yield f"{name} created", False, self._put(state, slot, self._new_pod())
                continue
            if pod.worker in ENDED:
                pass
            elif self.mode == "sidecar":
                yield from self._sidecar(state, slot, pod, name)
            else:
                yield from self._supervisor(state, slot, pod, name)
            if not full:
                yield from self._server_side(state, slot, pod, name)
        yield from self._suspension(state)
        yield from self._managers(state)
        if state.faults < self.faults:
            yield from self._faults(state)

    def _suspension(self, state: State) -> Iterator[tuple[str, bool, State]]:
        """A suspended JobSet is resumed; its Job follows it, as the pods of a suspended Job do."""
        newest = state.versions[-1]
        if newest.suspended:
            resumed = newest._replace(suspended=False)
            # A resumption may be charged if it comes before the suspension is executed and the
            # manager has observed that all pods leave.
            known, queue = state.manager.view, state.manager.queue
            done = state.idle and known.left and newest.turns % 2 and not queue
            hasty = not done or any(pod and not pod.deleting for pod in state.pods)
            failures = state.failures + hasty
            versions = (*state.versions, resumed)
            yield "RESUMED", False, state._replace(versions=versions, failures=failures)
        known = state.versions[state.manager.seen - 1]
        if known is newest and not known.suspended == state.idle == newest.turns % 2:
            # One pass of the controller of Jobs, which has seen the newest JobSet.
            after = newest._replace(turns=newest.turns + (newest.turns % 2 != known.suspended))
            versions = state.versions if after == newest else (*state.versions, after)
            label = f"the Job is {'suspended' if known.suspended else 'resumed'}"
            yield label, False, state._replace(idle=known.suspended, versions=versions)
        if state.idle and len(state.manager.queue) < self.lag:
            for slot, pod in enumerate(state.pods):
                if pod and not pod.deleting and pod.worker not in ENDED:
                    after = pod._replace(deleting=DRAINED)
                    yield f"p{slot} is asked to leave", False, self._put(state, slot, after)

    def _server_side(
        self, state: State, slot: int, pod: Pod, name: str
    ) -> Iterator[tuple[str, bool, State]]:
        if pod.patch:
            if pod.patch < pod.epoch:
                raise Violation(f"{name} patches {pod.patch} over {pod.epoch}")
            after = pod._replace(epoch=pod.patch, patch=0)
            yield f"{name} patched {pod.patch}", False, self._put(state, slot, after)
        if pod.late:
            stored = pod._replace(epoch=max(pod.late, pod.epoch), late=0)
            yield f"{name} patched late", False, self._put(state, slot, stored)
        actual = {"running": "r", "failed": "f"}.get(pod.worker, "n")
        if not self.early or pod.worker in ENDED:
            actual = pod.reported
        restarts = max(0, pod.starts - 1)
        counts = (restarts, restarts > 0 and pod.cause != 0, pod.strange, pod.restarts[3])
        if (actual, counts) != (pod.reported, pod.restarts):
            after = pod._replace(reported=actual, restarts=counts)
            yield f"{name} reported {actual} {counts}", False, self._put(state, slot, after)
        if pod.deleting:
            yield f"{name} gone", False, self._put(state, slot, ())
        if pod.deleting == DRAINED and pod.worker != "saved":
            after = self._agent_ends(pod)._replace(worker="saved", reported="s")
            after = after._replace(processes=self.idle)
            yield f"{name} saves and ends with 0", False, self._put(state, slot, after)

    def _agent_starts(self, state: State, slot: int, pod: Pod) -> State:
        newest = state.versions[-1]
        seen = observe((), newest.synced, newest.deprecated, pod.note)
        after = pod._replace(agent=seen.barrier, seen=len(state.versions), patch=seen.patch)
        # This run was not probed yet: if the barrier is open already, the note is removed.
        note = 0 if self.mode == "supervisor" else seen.patch
        after = after._replace(note=note)
        if self.counts:
            after = after._replace(starts=pod.starts + 1, cause=pod.code)
        return self._local(state, slot, after)

    def _agent_ends(self, pod: Pod, code: int = 137) -> Pod:
        late = max(pod.late, pod.patch) if self.late else 0
        if not self.counts:
            code = 0
        return pod._replace(agent=(), seen=0, patch=0, late=late, code=code)

    def _runs(self, state: State, slot: int, epoch: int) -> None:
        """Check the protocol's safety when a worker starts."""
        for other, pod in enumerate(state.pods):
            if not pod or pod.worker == "done":
                continue
            for each in pod.processes:
                if 0 < each.runs != epoch and other == slot:
                    raise Violation(f"p{slot} starts {epoch} while {each.runs} runs in it")
            if other == slot:
                continue
            if 0 < pod.runs < epoch:
                raise Violation(f"p{slot} starts {epoch} while p{other} runs {pod.runs}")
            if 0 < pod.epoch < epoch:
                raise Violation(f"p{slot} starts {epoch} while p{other} is at {pod.epoch}")

    def _sidecar(
        self, state: State, slot: int, pod: Pod, name: str
    ) -> Iterator[tuple[str, bool, State]]:
        if not pod.agent and pod.worker == "none" and not pod.deleting:
            yield f"{name} agent starts", False, self._agent_starts(state, slot, pod)
        if pod.agent and pod.seen < len(state.versions):
            version = state.versions[pod.seen]
            seen = observe(pod.agent, version.synced, version.deprecated)
            after = pod._replace(agent=seen.barrier, seen=pod.seen + 1)
            if seen.restart:
                after = self._agent_ends(after)
            label = f"{name} sees {version.synced}/{version.deprecated}"
            yield label, False, self._local(state, slot, after)
        if pod.agent and pod.agent[3] and pod.worker == "none" and not pod.deleting:
            probed = pod._replace(worker="probed", note=0)
            yield f"{name} probed", False, self._local(state, slot, probed)
        if pod.worker == "probed" and not pod.deleting:
            epoch = pod.agent[2] if pod.agent else pod.epoch
            self._runs(state, slot, epoch)
            after = pod._replace(worker="running", processes=(Process(epoch),))
            yield f"{name} worker starts", False, self._local(state, slot, after)
        if pod.worker != "none" and (not pod.agent or pod.worker == "failed"):
            after = _without(self._agent_ends(pod))._replace(worker="none")
            if self.counts:
                after = after._replace(strange=pod.strange + 1)
            yield f"{name} containers end", False, self._local(state, slot, after)

    def _supervisor(
        self, state: State, slot: int, pod: Pod, name: str
    ) -> Iterator[tuple[str, bool, State]]:
        if not pod.agent:
            if not pod.deleting:
                yield f"{name} agent starts", False, self._agent_starts(state, slot, pod)
            return
        if pod.seen < len(state.versions):
            version = state.versions[pod.seen]
            seen = observe(pod.agent, version.synced, version.deprecated)
            after = pod._replace(agent=seen.barrier, seen=pod.seen + 1)
            if seen.lift:
                after = self._worker(after, "lifted")
                if after.worker == "running":
                    after = self._let_run(state, slot, after)
            if seen.restart:
                after = self._worker(after, "deprecated")
            label = f"{name} sees {version.synced}/{version.deprecated}"
            yield label, False, self._local(state, slot, after)
        if self.standby:
            yield from self._standbys(state, slot, pod, name)
        if pod.worker in {"stopping", "hung"}:
            after = _without(self._worker(pod, "stopped"))
            yield f"{name} worker stopped", False, self._local(state, slot, after)
            after = self._worker(pod, "late")
            yield f"{name} worker does not stop", False, self._local(state, slot, after)
        if pod.worker == "clearing":
            after = self._worker(_without(pod), "emptied")
            yield f"{name} worker gone", False, self._local(state, slot, after)

    def _let_run(self, state: State, slot: int, pod: Pod) -> Pod:
        """Start processes after the barrier's lift: standby processes that are ready, or new ones."""
        epoch = pod.agent[2]
        processes = []
        for each in pod.processes:
            known = "ready" if each.standby == "broken" else each.standby
            after, taken = standby_step(known, "take")
            if taken and each.standby != "broken":
                processes.append(Process(0, after, epoch))
            else:
                # One that has just ended cannot be started: its end is noticed later.
                self._runs(state, slot, epoch)
                processes.append(each._replace(runs=epoch))
        return pod._replace(processes=tuple(sorted(processes)))

    def _standbys(
        self, state: State, slot: int, pod: Pod, name: str
    ) -> Iterator[tuple[str, bool, State]]:
        for at, each in enumerate(pod.processes):
            if each in pod.processes[:at]:
                continue  # they are alike
            for label, process in self._standby(state, slot, pod, each):
                processes = (*pod.processes[:at], process, *pod.processes[at + 1 :])
                after = pod._replace(processes=tuple(sorted(processes)))
                yield f"{name} standby {label}", False, self._local(state, slot, after)

    def _standby(
        self, state: State, slot: int, pod: Pod, process: Process
    ) -> Iterator[tuple[str, Process]]:
        standby = process.standby
        if pod.worker == "running" and standby == "none":
            yield "starts", process._replace(standby=standby_step("none", "due")[0])
        if standby == "preparing":
            yield "ready", process._replace(standby=standby_step("preparing", "ready")[0])
        if standby in {"ready", "broken"}:
            yield "ended", process._replace(standby=standby_step("ready", "ended")[0])
        if standby == "ready":
            yield "ends unnoticed", process._replace(standby="broken")
        if process.line:
            if process.line != pod.agent[2]:
                raise Violation(f"p{slot} runs {process.line} at epoch {pod.agent[2]}")
            self._runs(state, slot, process.line)
            yield "runs", process._replace(runs=process.line, line=0)

    def _worker(self, pod: Pod, event: str) -> Pod:
        phase, actions = worker_step(pod.worker, event, len(pod.processes))
        pod = pod._replace(worker=phase)
        if "JoinNext" in actions:
            seen = next_round(pod.agent)
            pod = pod._replace(agent=seen.barrier, patch=seen.patch)
        return pod

    def _managers(self, state: State) -> Iterator[tuple[str, bool, State]]:
        manager = state.manager
        if manager.queue:
            (slot, pod), *rest = manager.queue
            cached = state.versions[manager.seen - 1]
            view, due = see_pod(manager.view, cached, slot, pod, self.budget)
            after = manager._replace(view=view, due=manager.due or due, queue=tuple(rest))
            yield f"manager sees p{slot} {pod}", False, state._replace(manager=after)
        if manager.seen < len(state.versions):
            after = manager._replace(seen=manager.seen + 1, due=True)
            yield "manager sees the JobSet", False, state._replace(manager=after)
        if manager.due:
            after_state, after = self._pass(state, manager)
            yield "manager passes", False, after_state._replace(manager=after)
        known = not manager.queue and manager.seen == len(state.versions)
        if "late" in self.kinds and known:
            after_state, after = self._pass(state, manager, late=True)
            yield "manager passes late", False, after_state._replace(manager=after)
        if state.old:
            after_state, _ = self._pass(state, state.old)
            yield "old manager passes", False, after_state._replace(old=())
            yield "old manager ends", False, state._replace(old=())

    def _pass(self, state: State, manager: Manager, *, late: bool = False) -> tuple[State, Manager]:
        cached, stored = state.versions[manager.seen - 1], state.versions[-1]
        did = reconcile(
            manager.view, cached, stored, self.budget,
            behind=manager.seen < len(state.versions), waiting=manager.wrote > manager.seen,
            late=late, skew_h=state.skew_h if "clock" in self.kinds else None,
        )  # fmt: skip
        manager = manager._replace(view=did.view, due=False)
        if did.written is None:
            return state, manager
        new = did.written
        if new.synced < stored.synced or new.deprecated < stored.deprecated:
            raise Violation(f"the status goes back from {stored} to {new}")
        if new.deprecated > new.synced or new.synced > stored.synced + 1:
            raise Violation(f"the status becomes {new} after {stored}")
        if new.synced > 1 + state.failures + new.requests + state.left:
            raise Violation(f"epoch {new.synced} after {state.failures} failures")
        if new.failed and state.failures <= self.budget:
            raise Violation(f"the JobSet fails after {state.failures} failures")
        versions = (*state.versions, new)
        return state._replace(versions=versions), manager._replace(wrote=len(versions))

    def _faults(self, state: State) -> Iterator[tuple[str, bool, State]]:
        kinds = self.kinds if state.faults else self.first
        full = len(state.manager.queue) >= self.lag
        one = state._replace(faults=state.faults + 1)
        bad = one._replace(failures=state.failures + 1)
        for slot, pod in enumerate(state.pods):
            if not pod or pod.worker in ENDED:
                continue
            name = f"p{slot}"
            if "fail" in kinds and pod.worker == "running":
                if self.mode == "sidecar":
                    after = _without(pod)._replace(worker="failed")
                else:
                    after = self._worker(pod, "failed")
                yield f"{name} WORKER FAILS", True, self._local(bad, slot, after)
            if "hang" in kinds and pod.worker == "running":
                after = self._worker(pod, "hung")
                yield f"{name} WORKER HANGS", True, self._local(bad, slot, after)
            if "leave" in kinds and not pod.deleting and not full:
                after = pod._replace(deleting=2)
                one_left = one._replace(left=state.left + 1)
                yield f"{name} IS ASKED TO LEAVE", True, self._put(one_left, slot, after)
            if "drain" in kinds and not pod.deleting and not full:
                after = pod._replace(deleting=DRAINED)
                yield f"{name} IS DRAINED", True, self._put(bad, slot, after)
            if "kubelet" in kinds and pod.agent and not pod.deleting and not full:
                after = self._agent_ends(pod)._replace(worker="saved", reported="s", deleting=4)
                after = after._replace(processes=self.idle)
                one_left = one._replace(left=state.left + 1)
                yield f"{name} IS ENDED BY ITS KUBELET", True, self._put(one_left, slot, after)
            if "crash" in kinds and pod.agent:
                after = self._agent_ends(pod)
                if self.mode == "supervisor":
                    after = after._replace(worker="waiting", processes=self.idle)
                yield f"{name} AGENT CRASHES", True, self._local(bad, slot, after)
            if "delete" in kinds and not full:
                if not pod.deleting:
                    after = pod._replace(deleting=1)
                    yield f"{name} IS DELETED", True, self._put(bad, slot, after)
                yield f"{name} NODE LOST", True, self._put(bad, slot, ())
            if "quit" in kinds and pod.agent and pod.note and not pod.deleting:
                # Several times so far: that number of restarts would exceed any budget.
                after = self._agent_ends(pod, code=0)._replace(starts=pod.starts + 2)
                yield f"{name} AGENT ENDS WITH 0", True, self._local(one, slot, after)
            closed = pod.agent and pod.note and not pod.agent[3] and not pod.deleting
            if "forget" in kinds and closed and not full:
                after = self._agent_ends(pod)._replace(strange=pod.strange + 1)
                after = after._replace(restarts=(*pod.restarts[:3], pod.restarts[3] + 1))
                yield f"{name} KUBELET FORGETS", True, self._put(one, slot, after)
            if "stranger" in kinds:
                after = pod._replace(strange=pod.strange + 1)
                yield f"{name} STRANGER CRASHES", True, self._local(one, slot, after)
            running = pod.worker == "running" and pod.agent and not pod.deleting
            if "succeed" in kinds and running and not full:
                after = self._agent_ends(pod)._replace(worker="done", reported="s")
                after = after._replace(processes=self.idle)
                yield f"{name} WORKER SUCCEEDS", True, self._put(one, slot, after)
        if "ask" in kinds:
            newest = state.versions[-1]
            newest = newest._replace(requests=newest.requests + 1)
            yield "A RESTART IS REQUESTED", True, one._replace(versions=(*one.versions, newest))
        if "suspend" in kinds and not state.versions[-1].suspended:
            asleep = state.versions[-1]._replace(suspended=True)
            resumed_once = one._replace(left=state.left + 1)
            versions = (*one.versions, asleep)
            yield "SUSPENDED", True, resumed_once._replace(versions=versions)
        if "clock" in kinds:
            for hours in (-2, 2):
                yield f"CLOCK SET BY {hours} h", True, one._replace(skew_h=state.skew_h + hours)
        if "write" in kinds:
            yield "OTHER WRITE", True, one._replace(versions=(*one.versions, one.versions[-1]))
        if "takeover" in kinds and not state.old:
            pods = tuple(_cached(pod) for pod in state.pods)
            fresh = tuple(bool(pod) for pod in pods)
            reports = tuple(((f"p{i}", ""), 1) for i, pod in enumerate(pods) if pod and pod[3][3])
            view = View(pods, fresh, crashes=(False, 0, (), (), reports))
            new = Manager(view, len(state.versions))
            old = state.manager._replace(queue=(), due=True)
            yield "TAKEOVER", True, one._replace(manager=new, old=old)

    @staticmethod
    def _local(state: State, slot: int, pod: Pod) -> State:
        pods = (*state.pods[:slot], pod, *state.pods[slot + 1 :])
        return state._replace(pods=pods)

    def _put(self, state: State, slot: int, pod: Pod | tuple[()]) -> State:
        """Return the state after a change that the API server sends to its watches."""
        state = self._local(state, slot, pod)  # type: ignore[arg-type]
        queue = (*state.manager.queue, (slot, _cached(pod)))
        return state._replace(manager=state.manager._replace(queue=queue))


def _without(pod: Pod) -> Pod:
    """Return the pod without the worker's processes."""
    rest = (each._replace(runs=0, line=0) for each in pod.processes)
    return pod._replace(processes=tuple(sorted(rest)))


def _cached(pod: Pod | tuple[()]) -> tuple[Any, ...]:
    return (pod.epoch, pod.reported, pod.deleting, pod.restarts) if pod else ()


def _order(pods: tuple[Any, ...], manager: Manager, old: Manager | None) -> list[int]:
    """Return the order of pods by all that is known of them: they are alike."""
    queued: list[list[tuple[int, Any]]] = [[] for _ in pods]
    for place, (slot, pod) in enumerate(manager.queue):
        queued[slot].append((place, pod))
    view = manager.view
    rows = [
        (pod, view.pods[i], view.fresh[i], queued[i], old.view.pods[i] if old else (), i)
        for i, pod in enumerate(pods)
    ]
    return [row[-1] for row in sorted(rows)]


def _reordered(manager: Manager, order: list[int], place_of: dict[int, int]) -> Manager:
    view = manager.view
    return manager._replace(
        view=view._replace(
            pods=tuple(view.pods[i] for i in order),
            fresh=tuple(view.fresh[i] for i in order),
            failures=tuple((place_of[slot], *seen) for slot, *seen in view.failures),
        ),
        queue=tuple((place_of[slot], pod) for slot, pod in manager.queue),
    )
