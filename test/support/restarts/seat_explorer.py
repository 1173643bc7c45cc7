"""Every order of events of Jobs with seats and spares, with a bounded number of faults.

The decisions are the project's own: the agents' barrier and seat, the manager's ledger, decision and
assignment. Kubelets, Job controller and watches are models. A pod is lost with all its processes
(``lost``), is cut off and given up while its processes continue (``cut``), its worker fails
(``fail``), it is being deleted (``delete``), its health command fails (``unfit``), or another
manager takes over, which knows only the pods and the status (``takeover``). Agents and manager
observe changes in order, any time later. The last call for missing holders may be over or not at
any time.

The health command of a pod runs before it reports an epoch, and any time while it is parked. If it
fails, the agent starts no worker, reports it or not, and ends its pod, which is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, NamedTuple

from jobsetpy.agent.protocol.barrier import Lift, PatchEpoch, Restart
from jobsetpy.agent.protocol.wire_types import InPlaceRestart
from jobsetpy.agent.supervisor.ranks import Place
from jobsetpy.api import keys
from jobsetpy.api.agent_reports import READY
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.structs import JobSize as AgentSize
from jobsetpy.api.structs import TakenJob as AgentJob
from jobsetpy.api.structs import TakenSeat as AgentSeat
from jobsetpy.reconcilers.restart_in_place.epochs.decision import (
    Deprecate,
    Fail,
    Sync,
    decide_epochs,
)
from jobsetpy.reconcilers.restart_in_place.epochs.resizing import growth_cause
from jobsetpy.reconcilers.restart_in_place.failures.cause import Cause, FailureKind
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.steps.waiting import has_missing_pods
from support.jobsets import replicated_job
from support.restarts import epoch_plans
from support.restarts.epoch_plans import GROUP
from support.restarts.epoch_steps import barrier_of, state_of
from support.restarts.state_graph import StateGraph, Violation


class Shape(NamedTuple):
    """Numbers of Jobs, of those with seats, of the seats of each, and of its pods.

    ``least`` is the fewest seats with which a Job continues, ``least_jobs`` the fewest Jobs that
    continue, each with all seats or none; 0 if all are needed.
    """

    jobs: int = 1
    working: int = 1
    seats: int = 2
    pods: int = 3
    least: int = 0
    least_jobs: int = 0

    @property
    def elastic(self) -> bool:
        """True if the group may continue with fewer pods."""
        return bool(self.least or self.least_jobs)

    def allows(self, sizes: tuple[tuple[str, int], ...]) -> bool:
        """Return True if Jobs may have these numbers of seats in place of all."""
        if self.least_jobs:
            units = all(size == 0 for _, size in sizes)
            return units and self.jobs - len(sizes) >= self.least_jobs
        return self.least > 0 and all(self.least <= size < self.seats for _, size in sizes)

    @property
    def all(self) -> int:
        """Number of pods."""
        return self.jobs * self.pods

    @property
    def places(self) -> list[tuple[int, int]]:
        """All seats, by Job and index, in the order of their ranks."""
        return self.places_of(())

    def places_of(self, sizes: tuple[tuple[str, int], ...]) -> list[tuple[int, int]]:
        """Return the seats of an epoch in which some Jobs have another number of them."""
        known = dict(sizes)
        return [
            (job, seat)
            for job in range(self.working)
            for seat in range(known.get(self.name(job * self.pods), self.seats))
        ]

    def name(self, at: int) -> str:
        """Name of the Job of the pod with this number."""
        return f"test-js-w-{at // self.pods}"


class Status(NamedTuple):
    """Status of the JobSet: epochs, entries for seats, Jobs and sizes, and the size of the group."""

    synced: int = 0
    deprecated: int = 0
    taken: tuple[tuple[str, int, str], ...] = ()
    jobs: tuple[tuple[str, str], ...] = ()
    pods: int = 0
    sizes: tuple[tuple[str, int], ...] = ()


class Pod(NamedTuple):
    """Pod in the API server; ``index`` numbers the pods of all Jobs, one after the other."""

    uid: str
    index: int
    epoch: int = 0
    leaving: bool = False
    unfit: bool = False


class Agent(NamedTuple):
    """Supervisor and worker of a pod, which may be gone.

    Args:
        uid: UID of the pod.
        index: number of the pod.
        barrier: state of the barrier; ``()`` before the first state of the JobSet.
        seen: number of the state's versions that it has observed.
        patch: epoch that it is about to store, 0 for none.
        phase: "waiting", "running", "stopping" or "unfit".
        seat: seat of its worker, by Job and index.
        epoch: epoch of its worker.
        sizes: numbers of seats that its worker knows.
    """

    uid: str
    index: int
    barrier: tuple[Any, ...] = ()
    seen: int = 0
    patch: int = 0
    phase: str = "waiting"
    seat: tuple[int, int] = (-1, -1)
    epoch: int = 0
    sizes: tuple[tuple[str, int], ...] = ()


class State(NamedTuple):
    """Whole state; ``cached`` are the pods that the manager knows, ``cause`` an epoch that ended."""

    shape: Shape
    versions: tuple[Status, ...]
    pods: tuple[Pod | None, ...]
    agents: tuple[Agent, ...]
    cached: tuple[Pod | None, ...]
    cause: int = 0
    faults: int = 0
    made: int = 0


class Explorer(StateGraph):
    """Graph of all states.

    Args:
        faults: maximum number of faults on one way.
        kinds: kinds of faults.
        shape: numbers of Jobs, seats and pods.
        spares_only: True if only pods without a seat have faults, once the barrier has lifted:
            before that a manager may be about to give them one.
    """

    def __init__(
        self,
        faults: int,
        kinds: tuple[str, ...],
        shape: Shape = Shape(),  # noqa: B008 - immutable
        *,
        spares_only: bool = False,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.faults = faults
        self.kinds = kinds
        self.spares_only = spares_only

    def start(self) -> State:
        """Return the state of a JobSet whose pods have just been created."""
        pods = tuple(Pod(str(index), index) for index in range(self.shape.all))
        agents = tuple(Agent(pod.uid, pod.index) for pod in pods)
        return State(self.shape, (Status(),), pods, agents, pods)

    def is_goal(self, state: State) -> bool:
        """Return True if all seats work."""
        newest = state.versions[-1]
        seats = {
            each.seat
            for each in state.agents
            if each.phase == "running" and each.epoch == newest.synced and _lives(state, each)
        }
        return newest.synced > newest.deprecated and len(seats) == len(state.shape.places)

    def canonical(self, state: State) -> State:
        """Return the state without versions that all have observed, and without an order of agents."""
        drop = min([each.seen for each in state.agents if each.barrier], default=1) - 1
        drop = max(0, min(drop, len(state.versions) - 1))
        agents = [
            each._replace(seen=each.seen - drop) if each.barrier else each for each in state.agents
        ]
        return state._replace(versions=state.versions[drop:], agents=tuple(sorted(agents)))

    def described(self, state: State) -> list[str]:
        """Return the parts of a state, one on each line."""
        return [f"  {each}" for part in state for each in (part if type(part) is tuple else [part])]

    # ---- events ----------------------------------------------------------------------------------

    def next_states(self, state: State) -> Iterator[tuple[str, bool, State]]:
        """Yield each possible next event: a label, if it is a fault, and the state after it."""
        for at, agent in enumerate(state.agents):
            for label, after in _agent_events(state, agent):
                agents = list(state.agents)
                agents[at : at + 1] = [] if after is None else [after]
                yield label, False, _checked(state._replace(agents=tuple(agents)))
            pod = state.pods[agent.index]
            if agent.patch and pod is not None and pod.uid == agent.uid:
                agents = list(state.agents)
                agents[at] = agent._replace(patch=0)
                stored = _put(state, agent.index, pod._replace(epoch=agent.patch))
                yield f"{agent.uid} patched", False, stored._replace(agents=tuple(agents))
            if agent.phase == "unfit":
                yield from _unfit_events(state, agent)
        for index, pod in enumerate(state.pods):
            if pod is None:
                uid = f"{index}.{state.made}"
                fresh = _put(state, index, Pod(uid, index))
                agents = (*state.agents, Agent(uid, index))
                yield f"{uid} created", False, fresh._replace(agents=agents, made=state.made + 1)
            elif pod.leaving:
                gone = _without(_put(state, index, None), pod.uid)
                yield f"{pod.uid} gone", False, gone
            if state.cached[index] != pod:
                yield f"manager sees {index}", False, _see(state, index)
        for label, fault, after in _passes(state):
            if not fault or state.faults < self.faults:
                yield label, fault, after
        if state.faults < self.faults:
            yield from self._faults(state._replace(faults=state.faults + 1))

    def _faults(self, state: State) -> Iterator[tuple[str, bool, State]]:
        for pod in filter(None, state.pods):
            agent = next(each for each in state.agents if each.uid == pod.uid)
            newest = state.versions[-1]
            if self.spares_only and (
                holds(state.shape, newest, pod) is not None or not newest.synced
            ):
                continue
            if pod.leaving:
                continue
            if "lost" in self.kinds:
                yield f"{pod.uid} lost", True, _without(_put(state, pod.index, None), pod.uid)
            if "cut" in self.kinds:
                yield f"{pod.uid} cut off", True, _put(state, pod.index, None)
            if "delete" in self.kinds:
                yield f"{pod.uid} deleted", True, _put(state, pod.index, pod._replace(leaving=True))
            if "fail" in self.kinds and agent.phase == "running":
                yield f"{pod.uid} fails", True, _with(state, agent, _next_round(agent))
            if "unfit" in self.kinds and _is_checked(state, agent):
                ends = Agent(agent.uid, agent.index, phase="unfit")
                yield f"{pod.uid} is unfit", True, _with(state, agent, ends)
        if "takeover" in self.kinds:
            yield "takeover", True, state._replace(cached=state.pods, cause=0)


def holds(shape: Shape, status: Status, pod: Pod | Agent) -> tuple[int, int] | None:
    """Return the seat of a pod, by the agents' rule."""
    return _seat_of(shape, status.taken, status.jobs, status.sizes, pod.uid, pod.index)


@cache
def _seat_of(
    shape: Shape,
    taken: tuple[tuple[str, int, str], ...],
    jobs: tuple[tuple[str, str], ...],
    sizes: tuple[tuple[str, int], ...],
    uid: str,
    number: int,
) -> tuple[int, int] | None:
    job, index = divmod(number, shape.pods)
    place = Place(
        uid=uid, job=shape.name(number), index=index, seats=shape.seats, job_index=job,
        jobs=shape.working if shape.working < shape.jobs else 0,
    )  # fmt: skip
    return place.seat(
        InPlaceRestart(
            tuple(AgentSeat(*one) for one in taken),
            tuple(AgentJob(*one) for one in jobs),
            tuple(AgentSize(*one) for one in sizes),
        )
    )


def walk(shape: Shape, seed: int, steps: int, faults: float) -> State:
    """Return the state after random events, and then after others without faults until all work.

    Args:
        shape: numbers of Jobs, seats and pods.
        seed: seed of the schedule.
        steps: number of events with faults among them.
        faults: share of faults.
    """
    chance = Random(seed)
    explorer = Explorer(steps, ("lost", "cut", "delete", "fail", "unfit", "takeover"), shape)
    state, way = explorer.start(), []
    for step in range(steps + 3000):
        if step >= steps and explorer.is_goal(state):
            return state
        found = list(explorer.next_states(state))
        bad = [each for each in found if each[1]] if step < steps else []
        good = [each for each in found if not each[1]]
        chosen = bad if bad and (not good or chance.random() < faults) else good
        label, _, after = chance.choice(chosen)
        way.append(label)
        state = explorer.canonical(after)
    raise Violation(f"no way on after {way[-50:]}: {state}")


def _lives(state: State, agent: Agent) -> bool:
    pod = state.pods[agent.index]
    return pod is not None and pod.uid == agent.uid


def _put(state: State, index: int, pod: Pod | None) -> State:
    return state._replace(pods=(*state.pods[:index], pod, *state.pods[index + 1 :]))


def _with(state: State, old: Agent, new: Agent) -> State:
    return state._replace(agents=tuple(new if each is old else each for each in state.agents))


def _without(state: State, uid: str) -> State:
    return state._replace(agents=tuple(each for each in state.agents if each.uid != uid))


# ---- agents --------------------------------------------------------------------------------------


@cache
def _observe(barrier: tuple[Any, ...], synced: int, deprecated: int) -> tuple[Any, list[Any]]:
    one = barrier_of(barrier)
    actions = one.observe("js-uid", synced, deprecated)
    return state_of(one), actions


def _next_round(agent: Agent) -> Agent:
    one = barrier_of(agent.barrier)
    (patch,) = one.next_round()
    return agent._replace(
        barrier=state_of(one), patch=patch.epoch, phase="waiting", seat=(-1, -1), epoch=0, sizes=()
    )


def _is_checked(state: State, agent: Agent) -> bool:
    """Return True while the agent's health command may run: before a report, or parked."""
    if agent.phase != "waiting":
        return False
    seen = state.versions[agent.seen - 1] if agent.barrier else None
    return seen is None or bool(agent.patch) or holds(state.shape, seen, agent) is None


def _unfit_events(state: State, agent: Agent) -> Iterator[tuple[str, bool, State]]:
    """Next steps of an agent whose health command has failed: a report perhaps, and the end."""
    pod = state.pods[agent.index]
    if pod is not None and pod.uid == agent.uid:
        if not pod.unfit:
            reported = _put(state, agent.index, pod._replace(unfit=True))
            yield f"{agent.uid} reports that it is unfit", False, reported
        state = _put(state, agent.index, None)
    yield f"{agent.uid} ends", False, _without(state, agent.uid)


def _agent_events(state: State, agent: Agent) -> Iterator[tuple[str, Agent | None]]:
    """Yield the next steps of an agent, or of its worker; ``None`` where both end."""
    if agent.phase == "unfit":
        return
    if agent.phase == "stopping":
        yield f"{agent.uid} stopped", _next_round(agent)
    unseen = len(state.versions) if not agent.barrier else agent.seen + 1
    if unseen > len(state.versions):
        return
    status = state.versions[unseen - 1]
    barrier, actions = _observe(agent.barrier, status.synced, status.deprecated)
    after = agent._replace(barrier=barrier, seen=unseen)
    for action in actions:
        match action:
            case PatchEpoch(epoch):
                after = after._replace(patch=epoch)
            case Lift(epoch):
                seat = holds(state.shape, status, agent)
                if seat is None:
                    after = _next_round(after)
                elif _lives(state, agent) and not state.pods[agent.index].leaving:  # confirmed
                    after = after._replace(
                        phase="running", seat=tuple(seat), epoch=epoch, sizes=status.sizes
                    )
            case Restart(_, _, replaced):
                if after.phase == "waiting" or replaced:
                    after = _next_round(after)  # its worker is killed
                else:
                    after = after._replace(phase="stopping")
            case _:
                raise AssertionError(action)
    yield f"{agent.uid} sees {status.synced}/{status.deprecated}", after


def _checked(state: State) -> State:
    """Check that each seat has at most one worker, at the newest epoch."""
    workers = [each for each in state.agents if each.phase in {"running", "stopping"}]
    seats = [(each.epoch, each.seat) for each in workers]
    if len(set(seats)) < len(seats):
        raise Violation(f"two workers have a seat: {workers}")
    if len({(each.epoch, each.sizes) for each in workers}) > len({each.epoch for each in workers}):
        raise Violation(f"an epoch has two sizes: {workers}")
    newest = state.versions[-1]
    for each in workers:
        if each.seat not in state.shape.places_of(each.sizes):
            raise Violation(f"{each.uid} has a seat that does not exist: {each}")
        seated = holds(state.shape, newest, each) is not None
        if each.epoch < newest.synced and _lives(state, each) and seated:
            raise Violation(f"{each.uid} has a seat, and works at {each.epoch}")
    return state


# ---- manager -------------------------------------------------------------------------------------


def _see(state: State, index: int) -> State:
    """Process a change of a pod in the manager's watch."""
    old, new, newest = state.cached[index], state.pods[index], state.versions[-1]
    cached = (*state.cached[:index], new, *state.cached[index + 1 :])
    cause = state.cause
    if old is not None and not old.leaving and old.epoch == newest.synced > newest.deprecated:
        ended = new is None or new.uid != old.uid or new.leaving
        if ended and holds(state.shape, newest, old) is not None:
            cause = newest.synced
    return state._replace(cached=cached, cause=cause)


def _passes(state: State) -> Iterator[tuple[str, bool, State]]:
    """Yield passes of the manager's reconciler: before the last call is over, and after."""
    newest = state.versions[-1]
    for waited_s in (0.0, 1000.0):
        found = reconcile(state.shape, newest, state.cached, state.cause, waited_s)
        if found is None:
            continue
        if found.synced < newest.synced or found.deprecated < newest.deprecated:
            raise Violation(f"the status goes back: {found}")
        if found.deprecated and not state.faults and not state.shape.elastic:
            raise Violation(f"a restart without a fault: {found}")
        if found.synced > newest.synced:
            holders = [
                holds(state.shape, found, pod)
                for pod in state.cached
                if pod and pod.epoch == found.synced
            ]
            places = state.shape.places_of(found.sizes)
            if sorted(each for each in holders if each is not None) != places:
                raise Violation(f"not each seat has a pod: {found}, {state.cached}")
            if found.sizes and not state.shape.allows(found.sizes):
                raise Violation(
                    f"too few seats, a Job with a part, or one listed with all: {found}"
                )
        elif found.sizes != newest.sizes:
            raise Violation(f"an epoch changes its size: {newest}, {found}")
        if found.synced > newest.synced:
            for pod in filter(None, state.cached):
                if pod.unfit and holds(state.shape, found, pod) is not None:
                    raise Violation(f"{pod.uid} is unfit, and gets a seat: {found}")
        wrote = state._replace(versions=(*state.versions, found))
        label = f"manager {found.synced}/{found.deprecated} {found[2:]}"
        # Without this bound a group could shrink and grow for ever because pods are late.
        fewer = found.synced > newest.synced and bool(found.sizes)
        late = fewer and all(pod and not pod.leaving for pod in state.pods)
        yield label, late, wrote._replace(faults=state.faults + late)


@cache
def reconcile(
    shape: Shape, status: Status, cached: tuple[Pod | None, ...], cause: int, waited_s: float
) -> Status | None:
    """Return the status that the manager writes; ``None`` if it writes none."""
    jobset = jobset_of(shape, status)
    ledger = EpochLedger()
    for job in range(shape.jobs):
        ledger.job_changed(None, job_of(shape, job))
    ledger.note_status(GROUP, jobset.status, 0, 0.0)
    for pod in cached:
        if pod is not None:
            ready = shape.elastic and pod.epoch > status.synced and not pod.unfit
            ledger.pod_changed(None, pod_of(shape, pod, ready))
    pods = ledger.histogram(GROUP)
    why = Cause(cause, FailureKind.POD_DELETED, "p") if cause else None
    if why is None and waited_s and has_missing_pods(jobset, pods):
        why = Cause(status.synced, FailureKind.PODS_MISSING, "")
    if why is None or why.epoch < status.synced:
        why = growth_cause(jobset, pods, epoch_plans.START) or why
    decision = decide_epochs(jobset, pods, why, waited_s=waited_s)
    assert not isinstance(decision, Fail)
    if not isinstance(decision, Sync | Deprecate):
        return None
    taken, jobs, sizes = status.taken, status.jobs, status.sizes
    if isinstance(decision, Sync) and decision.record is not None:
        record = decision.record
        taken = tuple((one.job, one.seat, one.pod_uid) for one in record.taken_seats)
        jobs = tuple((one.job, one.holder) for one in record.taken_jobs)
        sizes = tuple((one.job, one.seats) for one in record.job_sizes)
    return Status(
        decision.fields.get("synced_epoch", status.synced),
        decision.fields.get("deprecated_epoch", status.deprecated),
        taken,
        jobs,
        len(shape.places_of(sizes)),
        sizes,
    )


def _notes(shape: Shape) -> dict[str, str]:
    notes = {keys.IN_PLACE_SPARES_ANNOTATION: str(shape.pods - shape.seats)}
    if shape.working < shape.jobs:
        notes[keys.IN_PLACE_SPARE_JOBS_ANNOTATION] = str(shape.jobs - shape.working)
    if shape.least:
        notes[keys.MIN_PODS_ANNOTATION] = str(shape.least)
    if shape.least_jobs:
        notes[keys.MIN_REPLICAS_ANNOTATION] = str(shape.least_jobs)
    return notes


@cache
def jobset_of(shape: Shape, status: Status) -> JobSet:
    """Return the JobSet with a status."""
    notes = {"annotations": _notes(shape)}
    item = replicated_job("w", shape.jobs, parallelism=shape.pods, pod_metadata=notes)
    taken = [
        {"job": job, "seat": seat, "pod": uid, "podUID": uid,
         "podIndex": int(uid.partition(".")[0]) % shape.pods}
        for job, seat, uid in status.taken
    ]  # fmt: skip
    jobs = [{"job": job, "holder": holder} for job, holder in status.jobs]
    sizes = [
        {"job": job, "seats": size, "missing": shape.seats - size} for job, size in status.sizes
    ]
    record = {"pods": status.pods, "takenSeats": taken, "takenJobs": jobs, "jobSizes": sizes}
    return epoch_plans.jobset(
        status.synced, status.deprecated, items=[item], max_restarts=1000,
        status={"inPlaceRestart": record},
    )  # fmt: skip


@cache
def job_of(shape: Shape, index: int) -> Job:
    """Return one of its Jobs."""
    spec = {"parallelism": shape.pods, "completions": shape.pods}
    return epoch_plans.job(
        shape.name(index * shape.pods), uid=f"job-{index}", index=index, replicas=shape.jobs,
        notes=_notes(shape), spec=spec,
    )  # fmt: skip


@cache
def pod_of(shape: Shape, pod: Pod, ready: bool = False) -> ChildPod:
    """Return a pod as the manager caches it."""
    job, index = divmod(pod.index, shape.pods)
    state = f"{keys.UNFIT_STATE}exit code 1" if pod.unfit else READY if ready else ""
    notes = _notes(shape) | ({keys.AGENT_STATE_ANNOTATION: state} if state else {})
    return epoch_plans.pod(
        pod.uid, pod.epoch or None, job=f"job-{job}", index=index, notes=notes,
        deleted=pod.leaving,
    )  # fmt: skip
