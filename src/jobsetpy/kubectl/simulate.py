"""``simulate``: plays a manifest through failures in virtual time, by the controllers' own rules.

What is decided is decided by the plans of ``reconcilers``: ``plan_jobs`` and ``plan_epochs``, as in
the manager. Only their surroundings are a model: a Job controller that knows the back-off limit and
pod failure policies by exit codes, kubelets that start every pod after the same time, agents that
follow the epochs. Every pod finds a node, unless it is said to find none: then its gang waits, for
as many pods as ``plan_coscheduling`` requires, and, under exclusive placement, its followers. It
knows no quotas, nor dependencies on time but these.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api._wire import evolve
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import (
    ChildPod,
    ChildPodAnnotations,
    ChildPodMeta,
    ChildPodSpec,
    ChildPodStatus,
    FailedContainer,
)
from jobsetpy.api.durations import parse_duration
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import Condition, OwnerReference
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.kubectl import manifests, output, timeline
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.objects import typed
from jobsetpy.reconcilers.coscheduling.plan import GangMemory, ObservedGangs, plan_coscheduling
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet, plan_jobs
from jobsetpy.reconcilers.restart_in_place.failures.reports import epoch_of
from jobsetpy.reconcilers.restart_in_place.observed.jobset_view import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.observed.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.spares.assign_job import READY
from jobsetpy.reconcilers.restart_in_place.steps.memory import EpochState
from jobsetpy.reconcilers.restart_in_place.steps.missing_pods import parked_uids
from jobsetpy.reconcilers.rules import plan as p
from jobsetpy.reconcilers.rules import restart_budget
from jobsetpy.reconcilers.rules.agent_containers import (
    RESTART_ALL_ACTIONS,
    has_code,
    restart_action,
    supervised,
)
from jobsetpy.reconcilers.rules.backoff import RestartBackoff
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import child, objects, text
from jobsetpy.reconcilers.rules.membership import AttemptKey
from jobsetpy.reconcilers.rules.summary import state
from jobsetpy.reconcilers.rules.times import Now

START: Final = datetime(2000, 1, 1, tzinfo=UTC)
UID: Final = "simulated"
PASSES: Final = 1000
"""Maximum number of passes at one moment; more mean that nothing comes to rest."""
MAX_PODS: Final = 4096

Json = dict[str, Any]


class Fault(NamedTuple):
    """Something that goes wrong: of a pod or Job (without the JobSet's name), when, and how."""

    what: str
    at: float
    how: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE", help="manifest with one JobSet; - for the input")
    several = partial(parser.add_argument, action="append", default=[])
    several(
        "--fail",
        metavar="POD@TIME[:exit=CODE]",
        help="the worker of a pod (such as workers-0-3) ends so; without a code it is 1",
    )
    several(
        "--lose-node", metavar="POD@TIME", help="the node of a pod is gone, and the pod with it"
    )
    several(
        "--fail-job",
        metavar="JOB@TIME[:reason=WORD]",
        help="a Job (such as workers-0) fails for a reason",
    )
    several(
        "--no-node",
        metavar="POD[@TIME]",
        help="a pod (such as workers-0-3) finds no node, never or from a time on",
    )
    parser.add_argument("--start", type=float, default=5.0, help="seconds from a pod to its worker")
    parser.add_argument("--until", type=float, default=0.0, help="seconds; 10 min after the last")


def run(options: argparse.Namespace) -> int:
    """Run the simulation."""
    jobset = _manifest(options.file)
    faults = _faults(options)
    end = options.until or max((each.at for _, each in faults), default=0.0) + 600
    simulation = Simulation(jobset, start_s=options.start)
    for kind, each in faults:
        simulation.plan_fault(kind, each)
    simulation.play(end)
    if options.output:
        output.write(simulation.result(), options.output)
        return 0
    for seconds, line in simulation.log:
        print(f"{_time(seconds):>9}  {line}")  # noqa: T201
    print()  # noqa: T201
    for line in simulation.summary():
        print(line)  # noqa: T201
    return 0


def _faults(options: argparse.Namespace) -> list[tuple[str, Fault]]:
    given = {
        "no-node": [each if "@" in each else f"{each}@0" for each in options.no_node],
        "exit": options.fail,
        "lose": options.lose_node,
        "job": options.fail_job,
    }
    return [(kind, fault(each)) for kind, several in given.items() for each in several]


def fault(text: str) -> Fault:
    """Parse a fault from the command line.

    Raises:
        CommandError: the text is not a fault.
    """
    what, _, rest = text.partition("@")
    at, _, how = rest.partition(":")
    if what:
        with suppress(ValueError):
            return Fault(what, parse_duration(at if at[-1:].isalpha() else f"{at}s"), how)
    raise CommandError(f"error: {text!r} is not NAME@TIME, such as workers-0-3@90s:exit=137")


def _manifest(path: str) -> Json:
    found = list(manifests.read([path]))
    broken = [each for each in found if each.problem]
    if broken:
        raise CommandError(f"error: {broken[0].place}: {broken[0].problem}")
    jobsets = [each.data for each in found if each.is_jobset and each.data is not None]
    if len(jobsets) != 1:
        raise CommandError(f"error: one JobSet is wanted, and {path} has {len(jobsets)}")
    verdict = manifests.judge(jobsets[0], Features())
    if verdict.errors:
        raise CommandError("\n".join(f"error: {each}" for each in verdict.errors))
    return verdict.jobset


class Simulation:
    """A JobSet, its Jobs and pods, and a clock.

    Args:
        jobset: with all defaults.
        start_s: from a pod's creation to its worker, and of a restart in a pod that needs the
            kubelet; a supervised worker starts again at once.
    """

    def __init__(self, jobset: Json, *, start_s: float = 5.0) -> None:
        meta = {"namespace": "default", "name": "simulated", **(jobset.get("metadata") or {})}
        created = seconds_text(START)
        meta.update(uid=UID, resourceVersion="1", creationTimestamp=created)
        self._jobset: Json = {**jobset, "metadata": meta, "status": {}}
        self.name: str = meta["name"]
        self._start_s = start_s
        self._no_node: set[str] = set()
        self._now = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._jobs: dict[str, Job] = {}
        self._templates: dict[str, Mapping[str, Any]] = {}
        self._pods: dict[str, ChildPod] = {}
        self._failures: Counter[str] = Counter()
        self._ledger = EpochLedger()
        self._jobs_memory = p.JobsMemory()
        self._epochs_memory = EpochState()
        self._gangs = GangMemory()
        self._surroundings: set[tuple[str, str]] = set()
        self.log: list[tuple[float, str]] = []

    # ---- faults ------------------------------------------------------------------------------

    def plan_fault(self, kind: str, each: Fault) -> None:
        """Schedule a fault.

        Raises:
            CommandError: the details of the fault are invalid.
        """
        word, _, value = each.how.partition("=")
        name = f"{self.name}-{each.what}"
        if kind == "job":
            if each.how and (word != "reason" or not value):
                raise CommandError(f"error: {each.how!r} is not reason=WORD")
            action = partial(self._fail_job, name, value or "BackoffLimitExceeded", sign="!")
        elif kind == "exit":
            if each.how and (word != "exit" or not value.isdecimal() or not 0 < int(value) < 256):
                why = f"{each.how!r} is not exit=CODE, with a code from 1 to 255"
                raise CommandError(f"error: {why}")
            action = partial(self._exit, name, int(value or 1))
        else:
            action = partial(self._lose if kind == "lose" else self._no_node.add, name)
        self._at(each.at, action)

    def _exit(self, name: str, code: int) -> None:
        pod = self._pods.get(name)
        if pod is None or not _runs(pod):
            self._print(f"! {name} does not run, so it cannot fail")
            return
        self._print(f"! the worker of {name} exits with {code}")
        spec = self._pod_spec(name)
        worker = objects(spec, "containers")[0][1]
        if self._in_place and supervised(spec):
            if code in _ending_codes(worker):
                self._fail_pod(name, code)
            else:
                self._report(name)
            return
        action = restart_action(worker, code)
        if action in RESTART_ALL_ACTIONS:
            self._change(name, running="", failed=self._ended(name, code))
            self._at(self._now + self._start_s, partial(self._restarted, name))
        elif action == "Restart" or (not action and text(spec, "restartPolicy") == "OnFailure"):
            self._print(f"  {name} restarts its container alone")
            self._failed_once(name, code)
        else:
            self._fail_pod(name, code)

    def _lose(self, name: str) -> None:
        if name not in self._pods:
            self._print(f"! there is no pod {name} whose node could be lost")
            return
        self._print(f"! the node of {name} is lost")
        self._remove(name)
        self._at(self._now, partial(self._fill, _job_name(name)))

    def _fail_pod(self, name: str, code: int) -> None:
        self._change(name, phase="Failed", running="", failed=self._ended(name, code))
        self._failed_once(name, code)

    def _failed_once(self, name: str, code: int) -> None:
        """Play the Job controller's reaction to a failed pod or container."""
        job, template = _job_name(name), self._template(name)
        for at, rule in objects(child(template, "podFailurePolicy"), "rules"):
            if not has_code(child(rule, "onExitCodes"), code):
                continue
            if rule.get("action") == "FailJob":
                message = (
                    f"Container {self._worker(name)} for pod default/{name} failed with exit code "
                    f"{code} matching FailJob rule at index {at}"
                )
                self._fail_job(job, "PodFailurePolicy", message)
                return
            if rule.get("action") == "Ignore":
                self._replace(name)
                return
            break
        uid = self._jobs[job].metadata.uid
        self._failures[uid] += 1
        limit = template.get("backoffLimit")
        if self._failures[uid] > (6 if limit is None else limit):
            message = "Job has reached the specified backoff limit"
            self._fail_job(job, "BackoffLimitExceeded", message)
        else:
            self._replace(name)

    def _replace(self, name: str) -> None:
        if name in self._pods and not _runs(self._pods[name]):
            self._remove(name)
            self._fill(_job_name(name))

    def _fail_job(self, name: str, reason: str, message: str = "", *, sign: str = " ") -> None:
        if name not in self._jobs:
            self._print(f"! there is no job {name} that could fail")
            return
        self._print(f"{sign} job {name} fails: {reason}")
        for pod in self._pods_of(name):
            self._remove(pod)
        condition = Condition(
            type="Failed",
            status="True",
            reason=reason,
            message=message,
            last_transition_time=self._second,
        )
        self._set_job(name, active=0, ready=0, conditions=(condition,))

    # ---- time --------------------------------------------------------------------------------

    def play(self, end: float) -> None:
        """Advance the clock to ``end`` seconds and execute everything until then."""
        self._settle()
        while self._agenda and self._agenda[0][0] <= end:
            self._now, _, action = heapq.heappop(self._agenda)
            action()
            if not self._agenda or self._agenda[0][0] > self._now:
                self._settle()
        self._now = max(self._now, end)

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._agenda, (seconds, self._count, action))

    def _print(self, line: str) -> None:
        self.log.append((self._now, line))

    @property
    def _moment(self) -> Now:
        return Now(START + timedelta(seconds=self._now), self._now)

    @property
    def _second(self) -> datetime:
        """The time as Kubernetes stores it."""
        return self._moment.wall.replace(microsecond=0)

    # ---- the manager -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Run the controllers until none has anything to do."""
        for _ in range(PASSES):
            if not (self._plan_jobs() or self._plan_epochs()):
                self._plan_gangs()
                return
        raise CommandError("error: the simulation does not come to rest")

    @property
    def _model(self) -> JobSet:
        return typed(JobSet, self._jobset)

    @property
    def _in_place(self) -> bool:
        return self._model.spec.restarts_in_place

    def _plan_jobs(self) -> bool:
        jobset = self._model
        observed = ObservedJobSet(
            key=jobset.metadata.key,
            jobset=jobset,
            jobs=list(self._jobs.values()),
            surroundings=self._surroundings,
            backoff=RestartBackoff(),
        )
        plan = plan_jobs(observed, self._jobs_memory, self._moment)
        self._jobs_memory = plan.memory or self._jobs_memory
        for action in plan.actions:
            self._act(action)
        self._store(plan)
        return bool(plan.actions) or (plan.status is not None and bool(plan.status.patch))

    def _plan_epochs(self) -> bool:
        if not self._in_place:
            return False
        jobset = self._model
        group = AttemptKey.of(jobset)
        known = self._ledger.newest_version
        self._ledger.note_status(group, jobset.status, known, self._now)
        notes = self._ledger.notes(group)
        observed = ObservedEpochs(
            jobset=jobset,
            pods=self._ledger.histogram(group),
            notes=notes,
            job_of=self._job_of,
            members=lambda: (list(self._jobs.values()), list(self._pods.values())),
            backoff=RestartBackoff(),
        )
        plan = plan_epochs(observed, self._epochs_memory, self._moment)
        self._epochs_memory = plan.memory or EpochState()
        self._store(plan)
        if plan.judged:
            self._ledger.forget_notes(group, notes)
        if plan.status is None or not plan.status.patch:
            return False
        self._ledger.note_status(group, self._model.status, known, self._now)
        self._follow()
        return True

    def _plan_gangs(self) -> None:
        jobset = self._model
        observed = ObservedGangs(key=jobset.metadata.key, jobset=jobset, jobs=self._jobs.values())
        plan = plan_coscheduling(observed, self._gangs, self._moment)
        self._gangs = plan.interim or GangMemory()

    def _store(self, plan: p.Plan[Any]) -> None:
        if plan.status is not None and plan.status.patch:
            self._jobset["status"] = _merged(self._jobset["status"], plan.status.patch)
            for event in plan.status.events:
                self._print(f"  {event.reason}: {event.message}")
        for event in plan.notices:
            self._print(f"  {event.reason}: {event.message}")
        if plan.result.delay is not None:
            self._at(self._now + max(0.001, plan.result.delay.total_seconds()), lambda: None)

    def _act(self, action: p.Action) -> None:
        match action:
            case p.CreateJob(name, body):
                self._create_job(name, body)
            case p.DeleteJob(name, _):
                self._delete_job(name)
            case p.CreateObject(kind, name):
                self._surroundings.add((kind, name))
            case p.ResumeJob(name) | p.SuspendJob(name):
                job = self._jobs[name]
                suspend = isinstance(action, p.SuspendJob)
                self._jobs[name] = evolve(job, spec=evolve(job.spec, suspend=suspend))
                self._fill(name)

    # ---- Jobs and pods -----------------------------------------------------------------------

    def _create_job(self, name: str, body: Mapping[str, Any]) -> None:
        self._count += 1
        job = typed(Job, {"metadata": body["metadata"], "spec": body["spec"]})
        job = evolve(job, metadata=evolve(job.metadata, uid=f"job-{self._count}"))
        self._jobs[name], self._templates[name] = job, body["spec"]
        self._ledger.job_changed(None, job, self._now)
        self._fill(name)

    def _delete_job(self, name: str) -> None:
        """Delete a Job with its pods, without the delay of a real cluster."""
        for pod in self._pods_of(name):
            self._remove(pod)
        self._ledger.job_changed(self._jobs.pop(name), None, self._now)
        self._print(f"  job {name} is deleted with its pods")

    def _fill(self, name: str) -> None:
        """Create the pods that a Job lacks."""
        job = self._jobs.get(name)
        if job is None or job.spec.suspend or job.status.conditions:
            return
        for index in range(job.spec.parallelism or 1):
            if f"{name}-{index}" not in self._pods:
                self._create_pod(job, index)
        self._recount(name)

    def _create_pod(self, job: Job, index: int) -> None:
        if len(self._pods) >= MAX_PODS:
            raise CommandError(f"error: more than {MAX_PODS} pods are not simulated")
        self._count += 1
        meta, name, uid = job.metadata, f"{job.metadata.name}-{index}", f"pod-{self._count}"
        owner = OwnerReference(kind="Job", name=meta.name, uid=meta.uid, controller=True)
        spares = meta.annotations.get(keys.IN_PLACE_SPARES_ANNOTATION, "")
        self._pods[name] = pod = ChildPod(
            metadata=ChildPodMeta(
                name=name,
                namespace=meta.namespace,
                uid=uid,
                resource_version=str(self._count),
                annotations=ChildPodAnnotations(completion_index=str(index), spares=spares),
                owner_references=(owner,),
            ),
            spec=ChildPodSpec(node_name=f"node-of-{name}"),
            status=ChildPodStatus(phase="Pending"),
        )
        self._ledger.pod_changed(None, pod, self._now)
        self._at(self._now + self._start_s, partial(self._started, name, uid))

    def _started(self, name: str, uid: str) -> None:
        pod = self._pods.get(name)
        if pod is None or pod.metadata.uid != uid:
            return
        if why := self._without_node(name):
            self._print(f"! {name} waits: {why}")
        else:
            self._run(name, phase="Running")
            if self._in_place:
                self._report(name)

    def _without_node(self, name: str) -> str:
        """Return why a pod has no node; "" if it has one."""
        found, gang = self._finds_no_node(name), self._gang_of(_job_name(name))
        if found or gang not in self._gangs.standings:
            return found
        least = self._gangs.standings[gang].minimum
        jobs = [job for job in self._jobs if self._gang_of(job) == gang]
        every = (pod for job in jobs for pod in self._pods_of(job))
        members = sum(not self._finds_no_node(pod) for pod in every)
        return f"nodes for {members} of {least} pods of its gang" if members < least else ""

    def _gang_of(self, job: str) -> str:
        labels = child(self._templates[job], "template", "metadata", "labels")
        return text(labels, keys.POD_GROUP_NAME)

    def _finds_no_node(self, name: str) -> str:
        if not self._no_node or _runs(self._pods[name]):
            return ""
        if name in self._no_node:
            return "it finds no node"
        notes, leader = self._jobs[_job_name(name)].metadata.annotations, f"{_job_name(name)}-0"
        followers = keys.EXCLUSIVE_TOPOLOGY_ANNOTATION in notes
        if followers and keys.NODE_SELECTOR_ANNOTATION not in notes and leader in self._no_node:
            return f"{leader}, whose domain it follows, finds no node"
        return ""

    def _restarted(self, name: str) -> None:
        if name in self._pods and _runs(self._pods[name]):
            self._run(name)
            self._report(name)

    def _report(self, name: str, *, parked: bool = False) -> None:
        """An agent starts, or its worker ends: it comes to the next epoch."""
        status = self._model.status
        epoch = max(status.synced_epoch, status.deprecated_epoch) + 1
        if epoch_of(self._pods[name]) < epoch:
            self._change(name, report=(str(epoch), READY if parked else ""))

    def _follow(self) -> None:
        """Agents at a deprecated epoch restart their workers."""
        over = self._model.status.deprecated_epoch
        self._park()
        for name, pod in self._pods.items():
            if _runs(pod) and 0 < epoch_of(pod) <= over:
                after = 0.2 if supervised(self._pod_spec(name)) else self._start_s
                self._at(self._now + after, partial(self._restarted, name))

    def _park(self) -> None:
        """Agents of pods without a seat come to the next epoch, with standby processes."""
        parked = parked_uids(self._model, list(self._jobs.values()), self._pods.values())
        for name, pod in list(self._pods.items()):
            if pod.metadata.uid in parked and _runs(pod) and epoch_of(pod):
                self._report(name, parked=True)

    def _run(self, name: str, **status: Any) -> None:
        self._change(name, running=self._worker(name), started=True, failed=(), **status)

    def _change(self, name: str, report: tuple[str, str] | None = None, **status: Any) -> None:
        """Change a pod's status, or the epoch and state that its agent reports."""
        old = self._pods[name]
        self._count += 1
        meta = evolve(old.metadata, resource_version=str(self._count))
        if report is not None:
            notes = evolve(meta.annotations, epoch=report[0], agent_state=report[1])
            meta = evolve(meta, annotations=notes)
        new = evolve(old, metadata=meta, status=evolve(old.status, **status))
        self._pods[name] = new
        self._ledger.pod_changed(old, new, self._now)
        if "phase" in status:
            self._recount(_job_name(name))

    def _remove(self, name: str) -> None:
        self._ledger.pod_changed(self._pods.pop(name), None, self._now)

    def _recount(self, name: str) -> None:
        phases = Counter(self._pods[pod].status.phase for pod in self._pods_of(name))
        ready = phases["Running"]
        self._set_job(name, active=ready + phases["Pending"], ready=ready)

    def _set_job(self, name: str, **status: Any) -> None:
        old = self._jobs[name]
        new = evolve(old, status=evolve(old.status, start_time=self._second, **status))
        self._jobs[name] = new
        self._ledger.job_changed(old, new, self._now)

    def _job_of(self, pod: ChildPod) -> Job | None:
        found = self._jobs.get(_job_name(pod.metadata.name))
        same = found is not None and found.metadata.uid == pod.metadata.controller_uid
        return found if same else None

    def _pods_of(self, job: str) -> list[str]:
        names = (f"{job}-{index}" for index in range(self._jobs[job].spec.parallelism or 1))
        return [name for name in names if name in self._pods]

    def _template(self, pod: str) -> Mapping[str, Any]:
        """Return the spec of a pod's Job, as JSON."""
        return self._templates[_job_name(pod)]

    def _pod_spec(self, pod: str) -> Mapping[str, Any]:
        return child(self._template(pod), "template", "spec")

    def _worker(self, pod: str) -> str:
        """Return the name of a pod's first container."""
        return text(objects(self._pod_spec(pod), "containers")[0][1], "name")

    def _ended(self, pod: str, code: int) -> tuple[FailedContainer, ...]:
        return (FailedContainer(name=self._worker(pod), exit_code=code, reason="Error"),)

    # ---- what came of it ---------------------------------------------------------------------

    def result(self) -> Json:
        """Return the outcome, for programs."""
        return {
            "state": state(self._model),
            "restarts": self._jobset["status"].get("restartHistory", []),
            "spent": restart_budget.spent(self._model.status),
            "log": [{"seconds": round(at, 3), "text": line.strip()} for at, line in self.log],
        }

    def summary(self) -> list[str]:
        """Return the outcome in sentences, for people."""
        model = self._model
        policy = model.spec.failure_policy
        lines = [f"At {_time(self._now)} the JobSet is {state(model)}."]
        if policy is not None:
            spent = restart_budget.spent(model.status)
            lines.append(f"{spent} of {policy.max_restarts} restarts that count are spent.")
        for record in self._jobset["status"].get("restartHistory", ()):
            counted = "counted" if record["counted"] else "not counted"
            lines.append(f"- {timeline.name_of(record)}, {counted}: {timeline.cause_of(record)}")
        lines += [
            f"It failed: {each.message}."
            for each in model.status.conditions
            if each.status == "True" and each.type == keys.FAILED_CONDITION
        ]
        return lines


def _merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Json:
    """Return an object with a JSON merge patch (RFC 7396) applied; lists are replaced."""
    changed = {
        name: _merged(old.get(name) or {}, value) if isinstance(value, Mapping) else value
        for name, value in patch.items()
    }
    return {name: value for name, value in {**old, **changed}.items() if value is not None}


def _runs(pod: ChildPod) -> bool:
    return pod.status.phase == "Running"


def _job_name(pod: str) -> str:
    return pod.rpartition("-")[0]


def _ending_codes(container: Mapping[str, Any]) -> set[int]:
    """Codes that end a supervised pod, as its agent reads them."""
    for _, variable in objects(container, "env"):
        name = text(variable, "name").removeprefix(keys.AGENT_VARIABLE_PREFIX)
        if name == "END_POD_EXIT_CODES":
            words = text(variable, "value").replace(",", " ").split()
            return {int(word) for word in words if word.isdecimal()}
    return set()


def _time(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes)}m{rest:04.1f}s" if minutes else f"{rest:.1f}s"
