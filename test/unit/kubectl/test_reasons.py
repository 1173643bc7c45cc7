"""Reasons that ``kubectl jobset status`` gives, and a command for each."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from jobsetpy.api import keys
from jobsetpy.kubectl import reasons
from jobsetpy.kubectl.objects import describe
from support.jobsets import jobset_json, replicated_job

NOW = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
CREATED = "2026-01-01T00:00:00Z"


def explain(of, jobs, pods):
    """Return the explanation of a JobSet."""
    return reasons.explain(describe(of, jobs, pods), of, jobs, pods, NOW)


def jobset(*items, status=None, meta=None, **spec):
    """Return a JobSet that is five minutes old."""
    data = jobset_json(*(items or (replicated_job("w", 1),)), **spec)
    data["status"] = {"restarts": 0} if status is None else status
    data["metadata"].update(creationTimestamp=CREATED, **(meta or {}))
    return data


def condition(kind, message):
    """Return a condition that holds."""
    return {"type": kind, "status": "True", "message": message, "lastTransitionTime": CREATED}


def job(**status):
    """Return a Job of the JobSet."""
    return {
        "metadata": {
            "name": "j",
            "uid": "j",
            "labels": {keys.REPLICATED_JOB_NAME: "w"},
            "ownerReferences": [{"kind": "JobSet", "uid": "js-uid", "controller": True}],
        },
        "spec": {"parallelism": 1},
        "status": {"active": 1, **status},
    }


def pod(spec=None, **status):
    """Return a pod of the Job."""
    return {
        "metadata": {
            "name": "p",
            "uid": "p",
            "ownerReferences": [{"kind": "Job", "uid": "j", "controller": True}],
        },
        "spec": spec or {"nodeName": "n"},
        "status": {"phase": "Pending", **status},
    }


def container(**state):
    """Return statuses with one container in a state."""
    return [{"name": "c", "state": state}]


IN_PLACE = {"restartStrategy": "InPlaceRestart"}
READY = {"type": "Ready", "status": "True"}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}
PULLING = container(waiting={"reason": "ErrImagePull", "message": "none"})
COUNTS = {"name": "w", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}
CASES = {
    "an index is complete without a pod": (
        jobset(failurePolicy=IN_PLACE), [job(completedIndexes="0,2-3")], [pod(phase="Running")],
        "j counts index 0, 2, 3 as complete without a pod", "kubectl jobset logs"),
    "failed": (
        jobset(status={"conditions": [condition("Failed", "jobset failed due to x")]}), [], [],
        "has failed 5m ago: jobset failed due to x.", "kubectl jobset logs test-js"),
    "suspended": (jobset(suspend=True), [], [], "is suspended by spec.suspend", "resume test-js"),
    "in a queue": (
        jobset(suspend=True, meta={"labels": {"kueue.x-k8s.io/queue-name": "gpus"}}), [], [],
        "waits in Kueue's queue gpus", "kubectl get workloads"),
    "another controller's": (
        jobset(managedBy="example.com/x"), [], [],
        "left to another controller: spec.managedBy is example.com/x", "describe"),
    "no controller's": (jobset(status={}), [], [], "No controller has reconciled test-js", "doctor"),
    "being deleted": (
        jobset(meta={"deletionTimestamp": CREATED, "finalizers": ["a/b"]}), [], [],
        "being deleted and waits for a/b", "-o yaml"),
    "a barrier": (
        jobset(status={"conditions": [condition("BarrierStalled", "1 of 2 pods has not come")]}),
        [job()], [], "1 of 2 pods has not come.", "kubectl jobset logs test-js"),
    **{f"the condition {kind}": (
        jobset(status={"conditions": [condition(kind, "cause; then what to do")]}),
        [job()], [], "cause; then what to do.", "kubectl jobset logs test-js")
       for kind in ("OutdatedDefinition", "PodsRefused", "CoschedulingNotServed")},
    "a dependency": (
        jobset(replicated_job("a"), replicated_job("b", depends_on=[("a", "Ready")])), [job()], [],
        "b has no Jobs until a is Ready.", "logs"),
    "a quota": (jobset(), [job(active=0)], [], "j has fewer pods than wanted.", "describe job j"),
    "a back-off": (
        jobset(), [job(active=0, uncountedTerminatedPods={"failed": ["x"]})], [],
        "j: the Job controller counts 1 failed pod and waits for up to 10 s after the latest",
        "describe job j"),
    "a gate": (
        jobset(), [job()], [pod({"schedulingGates": [{"name": "x/y"}]})],
        "p waits: it is held by the scheduling gate x/y.", "describe pod p"),
    "no node": (
        jobset(), [job()], [pod({}, conditions=[UNSCHEDULED])],
        "no node for it (0/3 nodes fit)", "describe pod p"),
    "an image": (
        jobset(), [job()], [pod(containerStatuses=PULLING)],
        "container c: ErrImagePull (none)", "describe pod p"),
    "a lost node": (
        jobset(), [job()], [pod(phase="Running", conditions=[{"type": "Ready", "status": "Unknown"}])],
        "its node n has not been heard of", "describe pod p"),
    "nothing": (
        jobset(status={"replicatedJobsStatus": [COUNTS]}, failurePolicy={"maxRestarts": 2}),
        [job(ready=1)], [pod(phase="Running", conditions=[READY])],
        "", "kubectl jobset logs"),
}  # fmt: skip


def test_running_jobset_has_the_cause_of_its_last_restart():
    """It has the last line of the error that the worker reported, even after the restart."""
    cause = {
        "reason": "WorkerFailed",
        "pod": "js-w-0-1",
        "node": "n1",
        "exitCode": 1,
        "message": "RuntimeError: CUDA out of memory",
    }
    record = {"kind": "InPlace", "number": 2, "beganAt": CREATED, "cause": cause}
    history = [record | {"cause": {}}, record | {"outcome": "Completed"}]
    of, jobs, pods, _, _ = CASES["nothing"]
    answer = explain(of | {"status": of["status"] | {"restartHistory": history}}, jobs, pods)

    assert answer.sentences[0].endswith(
        " ago: WorkerFailed js-w-0-1 exit 1 on n1: RuntimeError: CUDA out of memory."
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_reason_is_given_with_a_command(case):
    """The command shows more."""
    of, jobs, pods, text, command = case
    answer = explain(of, jobs, pods)

    assert text in " ".join(answer.sentences)
    assert command in answer.more


async def test_reason_is_given_once(training, capsys):
    """The barrier waits for the pod, and the pod has no node."""
    status = {"phase": "Pending", "conditions": [UNSCHEDULED]}
    training.world.patch("pods", "test-js-w-0-1", {"status": status}, subresource="status")
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    assert "The barrier of epoch 3 waits for test-js-w-0-1." in text
    assert "test-js-w-0-1 waits: no node for it (0/3 nodes fit)." in text


async def test_reasons_and_a_command_come_first(training, capsys):
    """The JobSet is restarting."""
    await training.run("status", "test-js")
    text = capsys.readouterr().out

    assert "The barrier of epoch 3 waits for test-js-w-0-1 (it is at epoch 2)." in text
    assert "├── more: kubectl jobset logs test-js -n default" in text


@pytest.mark.parametrize(
    ("states", "waits"),
    [
        (["", "prepared"], "the missing pods"),
        (["", "prepared", "parked"], "the standby processes of p2, p0"),
        (["", "prepared", "ready"], "the standby processes of p0"),
        (["prepared", "prepared", "ready"], "the time between two sizes"),
    ],
)
def test_smaller_group_says_for_which_pods_it_waits(states, waits):
    """It grows once the missing pod and the standby processes of the others are ready."""
    pods = [pod() for _ in states]
    for number, (one, state) in enumerate(zip(pods, states, strict=True)):
        notes = {keys.IN_PLACE_SPARES_ANNOTATION: "0", keys.AGENT_STATE_ANNOTATION: state}
        notes[keys.EPOCH_ANNOTATION] = "2" if number < 2 else "3"
        notes[keys.COMPLETION_INDEX_ANNOTATION] = str(number)
        one["metadata"] |= {"name": f"p{number}", "annotations": notes}
    record = {
        "pods": 2,
        "jobSizes": [{"job": "j", "seats": 2, "missing": 1}],
        "resizeTime": CREATED,
    }
    of = jobset(status={"syncedEpoch": 2, "inPlaceRestart": record}, failurePolicy=IN_PLACE)

    one = job()
    one["metadata"]["annotations"] = {keys.IN_PLACE_SPARES_ANNOTATION: "0"}
    one["spec"]["parallelism"] = 3
    text = f"The group works with 2 of 3 pods since 5m; it waits for {waits}."
    assert text in explain(of, [one], pods).sentences
    of["status"]["deprecatedEpoch"] = 2  # it grows, or has failed
    assert text not in explain(of, [one], pods).sentences
    later = "2026-01-01T00:04:00Z"
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": later}
    of["status"]["conditions"] = [resumed]
    assert describe(of, [one], pods)["barrier"]["since"] == later


def test_unfit_nodes_are_named():
    """The output of the health command is given as long as the failed pod exists."""
    one = pod(phase="Failed")
    one["metadata"]["annotations"] = {
        keys.AGENT_STATE_ANNOTATION: "unfit: exit code 1: 40960 MiB in use"
    }
    answer = explain(jobset(failurePolicy=IN_PLACE), [job()], [one])

    assert "Node n is unfit for pod p: exit code 1: 40960 MiB in use." in answer.sentences


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        ("7 moving w-0-3", "Heartbeats of test-js-w-0-3 no longer arrive at p."),
        ("7 blocked", "No heartbeats arrive at p: UDP, port 29400, is blocked"),
        ("6 moving w-0-3", ""),
        ("garbage", ""),
    ],
)
def test_missing_heartbeats_are_named_as_agents_report_them(report, sentence):
    """Only reports of the running epoch count."""
    one = pod()
    one["metadata"]["annotations"] = {keys.UNHEARD_ANNOTATION: report}
    answer = explain(jobset(status={"restarts": 0, "syncedEpoch": 7}), [job()], [one])
    found = [each for each in answer.sentences if "eartbeats" in each]

    assert len(found) == bool(sentence)
    assert all(each.startswith(sentence) for each in found)


@pytest.mark.parametrize(
    ("epoch", "progress", "said"), [(2, None, True), (2, "touched", False), (1, None, False)]
)
def test_hang_limit_without_any_step_is_reported(epoch, progress, said):
    """Agents report steps when a run ends, so the first run has shown nothing yet."""
    one = pod(phase="Running")
    one["metadata"]["annotations"] = {keys.PROGRESS_ANNOTATION: progress}
    asked = {"annotations": {"jobset.sigs.k8s.io/in-place-restart-hang-seconds": "auto"}}
    of = jobset(status={"restarts": 0, "syncedEpoch": epoch}, meta=asked, failurePolicy=IN_PLACE)
    answer = explain(of, [job()], [one])

    text = "No step was ever reported; hangs are not detected: set the annotation"
    assert any(each.startswith(text) for each in answer.sentences) == said


def test_failed_jobset_has_the_cause_and_no_barrier():
    """Pods that are left over hold nothing, and spares are not ready for anything."""
    cause = {"reason": "WorkerFailed", "pod": "js-w-0-1", "exitCode": 1}
    record = {"kind": "InPlace", "number": 2, "beganAt": CREATED, "cause": cause}
    status = {
        "conditions": [condition("Failed", "jobset failed")],
        "restartHistory": [record | {"outcome": "Failed"}],
        "syncedEpoch": 1,
        "deprecatedEpoch": 1,
        "inPlaceRestart": {"readySpares": 1},
    }
    of, left = jobset(status=status, failurePolicy=IN_PLACE), pod(phase="Running")
    found = describe(of, [job()], [left])

    assert (found["barrier"], found.get("spares")) == ({"closed": False}, None)
    assert explain(of, [job()], [left]).sentences[1] == (
        "Its end began 5m ago: WorkerFailed js-w-0-1 exit 1."
    )


def test_suspended_jobset_has_no_barrier_and_no_spares():
    """Its status is that of the time before: nothing waits until it is resumed."""
    status = {
        "state": "Suspended",
        "syncedEpoch": 1,
        "deprecatedEpoch": 1,
        "inPlaceRestart": {"readySpares": 1},
    }
    of = jobset(status=status, failurePolicy=IN_PLACE, suspend=True)
    found = describe(of, [job()], [pod(phase="Running")])

    assert (found["barrier"], found.get("spares")) == ({"closed": False}, None)


async def test_missing_service_account_is_named(training, capsys):
    """Without it, the Job controller creates no pods."""
    template = {"spec": {"serviceAccountName": "jobset-agent"}}
    change = {"spec": {"template": template}}
    training.world.patch("jobs", "test-js-w-0", change)
    training.world.patch("jobs", "test-js-w-0", {"status": {"active": 0}}, subresource="status")
    await training.run("status", "test-js")

    assert (
        "No pod can be created: the service account jobset-agent is missing; for agents: "
        "kubectl -n default apply -k config/agent/account"
    ) in capsys.readouterr().out
