"""``simulate``: plays a manifest through failures in virtual time, by the controllers' own rules.

What is decided is decided by the plans of ``reconcilers``: ``plan_jobs`` and ``plan_epochs``, as in
the manager. Only their surroundings are a model: a Job controller that knows the back-off limit and
pod failure policies by exit codes, kubelets that start every pod after the same time, agents that
follow the epochs. Every pod finds a node, unless it is said to find none: then its gang waits and,
under exclusive placement, its followers. It knows no quotas, nor dependencies on time but these.
"""

from __future__ import annotations

import argparse
import heapq
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.child_pod import ChildPod
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.timestamps import seconds_text
from jobsetpy.kubectl import manifests, output, timeline
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.kubectl.objects import typed
from jobsetpy.reconcilers.jobs.plan import ObservedJobSet, plan_jobs
from jobsetpy.reconcilers.restart_in_place.barrier_report import parked_uids
from jobsetpy.reconcilers.restart_in_place.job_seats import READY
from jobsetpy.reconcilers.restart_in_place.ledger import EpochLedger
from jobsetpy.reconcilers.restart_in_place.observed import ObservedEpochs
from jobsetpy.reconcilers.restart_in_place.plan import plan_epochs
from jobsetpy.reconcilers.restart_in_place.state import EpochState
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

_FAULT = re.compile(r"(?P<what>[a-z0-9.-]+)@(?P<at>[0-9.]+)(?P<unit>ms|s|m|h)?(?::(?P<how>.+))?\Z")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}

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
    several("--no-node", metavar="POD", help="a pod (such as workers-0-3) never finds a node")
    parser.add_argument("--start", type=float, default=5.0, help="seconds from a pod to its worker")
    parser.add_argument("--until", type=float, default=0.0, help="seconds; 10 min after the last")


def run(options: argparse.Namespace) -> int:
    """Run the simulation."""
    jobset = _manifest(options.file)
    given = {"exit": options.fail, "lose": options.lose_node, "job": options.fail_job}
    faults = [(kind, fault(each)) for kind, several in given.items() for each in several]
    end = options.until or max((each.at for _, each in faults), default=0.0) + 600
    simulation = Simulation(jobset, start_s=options.start, no_node=options.no_node)
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


def fault(text: str) -> Fault:
    """Parse a fault from the command line.

    Raises:
        CommandError: the text is not a fault.
    """
    match = _FAULT.match(text)
    try:
        at = float(match["at"]) * _UNITS[match["unit"]] if match else -1.0
    except ValueError:
        at = -1.0
    if match is None or at < 0:
        raise CommandError(f"error: {text!r} is not NAME@TIME, such as workers-0-3@90s:exit=137")
    return Fault(match["what"], at, match["how"] or "")


def _manifest(path: str) -> Json:
    found = list(manifests.read([path]))
    broken = [each for each in found if each.problem]
    if broken:
        raise CommandError(f"error: {broken[0].place}: {broken[0].problem}")
    jobsets = [each.data for each in found if each.is_jobset and each.data is not None]
    if len(jobsets) != 1:
        raise CommandError(f"error: one JobSet is wanted, and {path} has {len(jobsets)}")
    verdict = manifests.judge(jobsets[0], Features(), "jobsetpy-agent")
    if verdict.errors:
        raise CommandError("\n".join(f"error: {each}" for each in verdict.errors))
    return verdict.jobset


class Simulation:
    """A JobSet, its Jobs and pods, and a clock.

    Args:
        jobset: with all defaults.
        start_s: from a pod's creation to its worker, and of a restart in a pod that needs the
            kubelet; a supervised worker starts again at once.
        no_node: pods that never find a node, without the JobSet's name.
    """

    def __init__(
        self, jobset: Json, *, start_s: float = 5.0, no_node: Collection[str] = ()
    ) -> None:
        meta = {"namespace": "default", "name": "simulated", **(jobset.get("metadata") or {})}
        created = seconds_text(START)
        meta.update(uid=UID, resourceVersion="1", creationTimestamp=created)
        self._jobset: Json = {**jobset, "metadata": meta, "status": {}}
        self.name: str = meta["name"]
        self._start_s = start_s
        self._no_node = {f"{self.name}-{each}" for each in no_node}
        self._now = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._jobs: dict[str, Json] = {}
        self._pods: dict[str, Json] = {}
        self._failures: dict[str, int] = {}
        self._ledger = EpochLedger()
        self._jobs_memory = p.JobsMemory()
        self._epochs_memory = EpochState()
        self._surroundings: set[str] = set()
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
            reason = value or "BackoffLimitExceeded"
            self._at(each.at, lambda: self._fail_job(name, reason, "", failures=1))
            return
        if kind == "lose":
            self._at(each.at, lambda: self._lose(name))
            return
        if each.how and (word != "exit" or not value.isdecimal() or not 0 < int(value) < 256):
            raise CommandError(f"error: {each.how!r} is not exit=CODE, with a code from 1 to 255")
        self._at(each.at, lambda: self._exit(name, int(value or 1)))

    def _exit(self, name: str, code: int) -> None:
        pod = self._pods.get(name)
        if pod is None or not _runs(pod):
            self._print(f"! {name} does not run, so it cannot fail")
            return
        self._print(f"! the worker of {name} exits with {code}")
        template = self._template(pod["job"])
        spec = child(template, "template", "spec")
        worker = objects(spec, "containers")[0][1]
        if self._in_place and supervised(spec):
            if code in _ending_codes(worker):
                self._fail_pod(name, code)
            else:
                self._report(name)
            return
        action = restart_action(worker, code)
        if action in RESTART_ALL_ACTIONS:
            self._change(name, container=_ended(worker, code))
            self._at(self._now + self._start_s, lambda: self._restarted(name))
        elif action == "Restart" or (not action and text(spec, "restartPolicy") == "OnFailure"):
            self._print(f"  {name} restarts its container alone")
            self._failed_once(pod["job"], name, code)
        else:
            self._fail_pod(name, code)

    def _lose(self, name: str) -> None:
        if name not in self._pods:
            self._print(f"! there is no pod {name} whose node could be lost")
            return
        self._print(f"! the node of {name} is lost")
        job = self._pods[name]["job"]
        self._remove(name)
        self._at(self._now, lambda: self._fill(job))

    def _fail_pod(self, name: str, code: int) -> None:
        pod = self._pods[name]
        self._change(name, phase="Failed", container=_ended(self._worker(pod["job"]), code))
        self._failed_once(pod["job"], name, code)

    def _failed_once(self, job: str, name: str, code: int) -> None:
        """Play the Job controller's reaction to a failed pod or container."""
        template = self._template(job)
        for at, rule in objects(child(template, "podFailurePolicy"), "rules"):
            if not has_code(child(rule, "onExitCodes"), code):
                continue
            if rule.get("action") == "FailJob":
                worker = text(self._worker(job), "name")
                message = (
                    f"Container {worker} for pod default/{name} failed with exit code {code} "
                    f"matching FailJob rule at index {at}"
                )
                self._fail_job(job, "PodFailurePolicy", message)
                return
            if rule.get("action") == "Ignore":
                self._replace(job, name)
                return
            break
        self._failures[job] = self._failures.get(job, 0) + 1
        limit = template.get("backoffLimit")
        if self._failures[job] > (6 if limit is None else limit):
            message = "Job has reached the specified backoff limit"
            self._fail_job(job, "BackoffLimitExceeded", message)
        else:
            self._replace(job, name)

    def _replace(self, job: str, name: str) -> None:
        if name in self._pods and not _runs(self._pods[name]):
            self._remove(name)
            self._fill(job)

    def _fail_job(self, name: str, reason: str, message: str, *, failures: int = 0) -> None:
        if name not in self._jobs:
            self._print(f"! there is no job {name} that could fail")
            return
        self._print(f"{'!' if failures else ' '} job {name} fails: {reason}")
        for pod in [each for each in self._pods.values() if each["job"] == name]:
            self._remove(pod["metadata"]["name"])
        condition = {
            "type": "Failed",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": self._text_now(),
        }
        self._set_job(name, active=0, ready=0, conditions=[condition])

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

    def _text_now(self) -> str:
        return seconds_text(self._moment.wall)

    # ---- the manager -------------------------------------------------------------------------

    def _settle(self) -> None:
        """Run both controllers until neither has anything to do."""
        for _ in range(PASSES):
            if not (self._plan_jobs() or self._plan_epochs()):
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
            jobs=[typed(Job, job) for job in self._jobs.values()],
            services=frozenset(self._surroundings),
            claims=frozenset(self._surroundings),
            config_maps=frozenset(self._surroundings),
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
            members=lambda: (
                [typed(Job, job) for job in self._jobs.values()],
                [typed(ChildPod, pod) for pod in self._pods.values()],
            ),
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
            case p.CreateService(name, _) | p.CreateClaim(name, _):
                self._surroundings.add(name)
            case p.CreateGroupObject(_, name, _):
                self._surroundings.add(name)
            case p.ResumeJob(name, _):
                self._set_job_spec(name, suspend=False)
                self._fill(name)
            case p.SuspendJob(name, _):
                self._set_job_spec(name, suspend=True)

    # ---- Jobs and pods -----------------------------------------------------------------------

    def _create_job(self, name: str, body: Mapping[str, Any]) -> None:
        self._count += 1
        owner = {"kind": "JobSet", "name": self.name, "uid": UID, "controller": True}
        owner["apiVersion"] = f"{keys.GROUP}/{keys.VERSION}"
        meta = {**body["metadata"], "uid": f"job-{self._count}", "ownerReferences": [owner]}
        meta.setdefault("name", name)
        meta["namespace"] = self._jobset["metadata"]["namespace"]
        job: Json = {"metadata": meta, "spec": dict(body["spec"]), "status": {}}
        self._jobs[name] = job
        self._failures[name] = 0
        self._ledger.job_changed(None, typed(Job, job), self._now)
        self._fill(name)

    def _delete_job(self, name: str) -> None:
        """Delete a Job with its pods, without the delay of a real cluster."""
        for pod in [each for each in self._pods.values() if each["job"] == name]:
            self._remove(pod["metadata"]["name"])
        old = self._jobs.pop(name)
        self._ledger.job_changed(typed(Job, old), None, self._now)
        self._print(f"  job {name} is deleted with its pods")

    def _fill(self, name: str) -> None:
        """Create the pods that a Job lacks."""
        job = self._jobs.get(name)
        if job is None or job["spec"].get("suspend") or job["status"].get("conditions"):
            return
        for index in range(job["spec"].get("parallelism") or 1):
            pod_name = f"{name}-{index}"
            if pod_name in self._pods:
                continue
            if len(self._pods) >= MAX_PODS:
                raise CommandError(f"error: more than {MAX_PODS} pods are not simulated")
            self._count += 1
            owner = {"kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": True}
            pod: Json = {
                "job": name,
                "metadata": {
                    "name": pod_name,
                    "namespace": job["metadata"]["namespace"],
                    "uid": f"pod-{self._count}",
                    "resourceVersion": str(self._count),
                    "annotations": {
                        keys.COMPLETION_INDEX_ANNOTATION: str(index),
                        **self._spares(job),
                    },
                    "ownerReferences": [owner],
                },
                "spec": {"nodeName": f"node-of-{pod_name}"},
                "status": {"phase": "Pending"},
            }
            self._pods[pod_name] = pod
            self._ledger.pod_changed(None, typed(ChildPod, pod), self._now)
            uid = pod["metadata"]["uid"]
            self._at(self._now + self._start_s, partial(self._started, pod_name, uid))
        self._recount(name)

    def _spares(self, job: Json) -> dict[str, str]:
        name = keys.IN_PLACE_SPARES_ANNOTATION
        given = text(child(job, "metadata", "annotations"), name)
        return {name: given} if given else {}

    def _started(self, name: str, uid: str) -> None:
        pod = self._pods.get(name)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        if why := self._without_node(pod):
            self._print(f"! {name} waits: {why}")
        else:
            self._change(name, phase="Running", container=self._running(pod["job"]))
            if self._in_place:
                self._report(name)

    def _without_node(self, pod: Json) -> str:
        """Return why a pod has no node; "" if it has one."""
        found, gang = self._finds_no_node(pod), self._label(pod, keys.POD_GROUP_NAME)
        if found or not gang:
            return found
        least = int(self._label(pod, keys.POD_GROUP_MIN_AVAILABLE))
        members = sum(
            not self._finds_no_node(each)
            for each in self._pods.values()
            if self._label(each, keys.POD_GROUP_NAME) == gang
        )
        return f"nodes for {members} of {least} pods of its gang" if members < least else ""

    def _label(self, pod: Json, name: str) -> str:
        labels = child(self._template(pod["job"]), "template", "metadata", "labels")
        return text(labels, name)

    def _finds_no_node(self, pod: Json) -> str:
        notes, leader = self._jobs[pod["job"]]["metadata"]["annotations"], f"{pod['job']}-0"
        if pod["metadata"]["name"] in self._no_node:
            return "it finds no node"
        followers = keys.EXCLUSIVE_TOPOLOGY_ANNOTATION in notes
        if followers and keys.NODE_SELECTOR_ANNOTATION not in notes and leader in self._no_node:
            return f"{leader}, whose domain it follows, finds no node"
        return ""

    def _restarted(self, name: str) -> None:
        if name in self._pods:
            self._change(name, container=self._running(self._pods[name]["job"]))
            self._report(name)

    def _report(self, name: str, *, parked: bool = False) -> None:
        """An agent starts, or its worker ends: it comes to the next epoch."""
        status = self._model.status
        epoch = max(status.synced_epoch, status.deprecated_epoch) + 1
        if _epoch(self._pods[name]) < epoch:
            self._change(name, epoch=epoch, agent_state=READY if parked else "")

    def _follow(self) -> None:
        """Agents at a deprecated epoch restart their workers."""
        over = self._model.status.deprecated_epoch
        self._park()
        for name, pod in self._pods.items():
            if _runs(pod) and 0 < _epoch(pod) <= over:
                spec = child(self._template(pod["job"]), "template", "spec")
                after = 0.2 if supervised(spec) else self._start_s
                self._at(self._now + after, partial(self._come, name))

    def _park(self) -> None:
        """Agents of pods without a seat come to the next epoch, with standby processes."""
        jobs = [typed(Job, job) for job in self._jobs.values()]
        pods = [typed(ChildPod, pod) for pod in self._pods.values()]
        parked = parked_uids(self._model, jobs, pods)
        for name, pod in list(self._pods.items()):
            if pod["metadata"]["uid"] in parked and _runs(pod) and _epoch(pod):
                self._report(name, parked=True)

    def _come(self, name: str) -> None:
        if name in self._pods and _runs(self._pods[name]):
            self._report(name)

    def _change(
        self,
        name: str,
        *,
        phase: str = "",
        container: Json | None = None,
        epoch: int = 0,
        agent_state: str = "",
    ) -> None:
        old = self._pods[name]
        self._count += 1
        meta = {**old["metadata"], "resourceVersion": str(self._count)}
        status = dict(old["status"])
        if epoch:
            reported = {keys.EPOCH_ANNOTATION: str(epoch), keys.AGENT_STATE_ANNOTATION: agent_state}
            meta["annotations"] = {**meta["annotations"], **reported}
        if phase:
            status["phase"] = phase
        if container is not None:
            status["containerStatuses"] = [container]
        new = {**old, "metadata": meta, "status": status}
        self._pods[name] = new
        self._ledger.pod_changed(typed(ChildPod, old), typed(ChildPod, new), self._now)
        if phase:
            self._recount(old["job"])

    def _remove(self, name: str) -> None:
        old = self._pods.pop(name)
        self._ledger.pod_changed(typed(ChildPod, old), None, self._now)

    def _recount(self, name: str) -> None:
        pods = [pod for pod in self._pods.values() if pod["job"] == name]
        ready = sum(1 for pod in pods if _runs(pod))
        active = sum(1 for pod in pods if pod["status"]["phase"] in {"Pending", "Running"})
        self._set_job(name, active=active, ready=ready)

    def _set_job(self, name: str, **status: Any) -> None:
        old = self._jobs[name]
        new = {**old, "status": {**old["status"], "startTime": self._text_now(), **status}}
        self._jobs[name] = new
        self._ledger.job_changed(typed(Job, old), typed(Job, new), self._now)

    def _set_job_spec(self, name: str, **spec: Any) -> None:
        old = self._jobs[name]
        self._jobs[name] = {**old, "spec": {**old["spec"], **spec}}

    def _job_of(self, pod: ChildPod) -> Job | None:
        uid = pod.metadata.controller_uid
        found = [job for job in self._jobs.values() if job["metadata"]["uid"] == uid]
        return typed(Job, found[0]) if found else None

    def _template(self, job: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._jobs[job]["spec"]
        return found

    def _worker(self, job: str) -> Mapping[str, Any]:
        return objects(child(self._template(job), "template", "spec"), "containers")[0][1]

    def _running(self, job: str) -> Json:
        return {"name": text(self._worker(job), "name"), "state": {"running": {}}}

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


def _runs(pod: Json) -> bool:
    return bool(pod["status"]["phase"] == "Running")


def _epoch(pod: Json) -> int:
    return int(pod["metadata"]["annotations"].get(keys.EPOCH_ANNOTATION, 0))


def _ended(worker: Mapping[str, Any], code: int) -> Json:
    end = {"exitCode": code, "reason": "Error"}
    return {"name": text(worker, "name"), "state": {"terminated": end}}


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
