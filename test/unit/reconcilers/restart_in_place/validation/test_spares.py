"""Spares in new and changed JobSets: injected variables, and errors by field and reason."""

from __future__ import annotations

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.update import restore
from jobsetpy.reconcilers.validation.defaulting import kept_defaults
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.testing import json_patch
from support.restarts import injection_kit
from support.restarts.injection_kit import WORKER, admitted, job, job_of, problems, variables

SPARES = keys.IN_PLACE_SPARES_ANNOTATION
START = keys.START_WITHOUT_SPARES_ANNOTATION
JOBS = keys.IN_PLACE_SPARE_JOBS_ANNOTATION
POD = "spec.replicatedJobs[0].template.spec.template"
INDEX = {"fieldRef": {"fieldPath": f"metadata.annotations['{keys.COMPLETION_INDEX_ANNOTATION}']"}}
REPLICAS = {"fieldRef": {"fieldPath": f"metadata.labels['{keys.REPLICATED_JOB_REPLICAS}']"}}
COORDINATOR = {"fieldRef": {"fieldPath": f"metadata.annotations['{keys.COORDINATOR}']"}}
SLICE = {"fieldRef": {"fieldPath": f"metadata.labels['{keys.JOB_INDEX}']"}}
INDEX_FILE = {"downwardAPI": {"items": [{"path": "i", **INDEX}]}}
MOUNT = {"name": "v", "mountPath": "/v", "subPathExpr": "$(JOB_COMPLETION_INDEX)"}
NO_AGENT = {keys.IN_PLACE_AGENT_ANNOTATION: None}
SIDECAR = {keys.IN_PLACE_AGENT_ANNOTATION: "sidecar", keys.IN_PLACE_PROCESSES_ANNOTATION: None}


def jobset(
    *, spares="1", own=None, worker=None, pod=None, strategy="InPlaceRestart", notes=None, **fields
):
    """Return a JobSet of two Jobs of three seats; ``own`` are annotations of its pod template."""
    given = {keys.IN_PLACE_PROCESSES_ANNOTATION: "2", SPARES: spares, **(notes or {})}
    container = {**copy.deepcopy(WORKER), **(worker or {})}
    fields = {"parallelism": 3, "completions": 3, **fields}
    item = job(
        replicas=fields.pop("replicas", 2), pod=pod, notes=own, containers=[container], **fields
    )
    return injection_kit.jobset(item, mode="supervisor", notes=given, strategy=strategy)


def with_spare_jobs(*, notes=None, **fields):
    """Return the JobSet with one working Job, and a spare Job in place of spare pods."""
    return jobset(spares=None, notes={JOBS: "1", **(notes or {})}, replicas=1, **fields)


def counts(body):
    """Return the Jobs, and the pods of each, that a JobSet states."""
    item = body["spec"]["replicatedJobs"][0]
    spec = item["template"]["spec"]
    return item.get("replicas", 1), spec["parallelism"], spec["completions"]


def two_jobs(*, order="AnyOrder", **fields):
    """Return the JobSet with a second ReplicatedJob."""
    body = jobset()
    first = body["spec"]["replicatedJobs"][0]
    body["spec"]["replicatedJobs"].append({**copy.deepcopy(first), "name": "v", **fields})
    body["spec"]["startupPolicy"] = {"startupPolicyOrder": order}
    return body


def test_agent_gets_the_variables_that_determine_its_seat():
    """Ranks are those of the pods that the manifest states."""
    rank = {"name": "NODE_RANK", "valueFrom": INDEX}
    found = variables(jobset(worker={"env": [rank]}))

    assert found["WORKER_SEATS"] == found["WORKER_JOB_PODS"] == "3"
    assert found["WORKER_WORLD_SIZE"] == "12"
    assert found["WORKER_SEAT_VARIABLES"] == "JOB_COMPLETION_INDEX,NODE_RANK"
    assert found["POD_UID"] == "metadata.uid"
    assert found["WORKER_JOB"] == "metadata.labels['batch.kubernetes.io/job-name']"
    assert found["WORKER_MASTER_JOB"] == "$(JOBSET_AGENT_JOBSET_NAME)-w-0"
    assert found["WORKER_MASTER_SEAT"] == "0"


def test_variables_are_the_usual_ones_without_spares():
    """Without the annotation, and with the number 0."""
    assert variables(jobset(spares="0")) == variables(jobset(spares=None))
    assert "WORKER_SEATS" not in variables(jobset(spares=None))


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (jobset(), (2, 4, 4)),
        (jobset(spares="0"), (2, 3, 3)),
        (jobset(spares="2", own={SPARES: "1"}), (2, 4, 4)),
        (jobset(spares=None, own={SPARES: "2"}), (2, 5, 5)),
        (jobset(parallelism=None), (2, 4, 4)),
        (with_spare_jobs(), (2, 3, 3)),
        (with_spare_jobs(notes={SPARES: "2"}), (2, 5, 5)),
    ],
)
def test_spares_are_added_when_a_jobset_is_created(given, stored):
    """Once: the stored JobSet, created elsewhere or sent through admission again, stays."""
    made, errors = admitted(given)

    assert (errors, counts(made)) == ([], stored)
    assert counts(admitted(made)[0]) == stored
    assert variables(given).get("WORKER_SEATS", "3") == "3"


@pytest.mark.parametrize("given", [jobset(), jobset(own={SPARES: "2"}), with_spare_jobs()])
def test_spares_are_kept_when_a_manifest_is_applied_again(given):
    """Also the manifest that stated all pods, as before release 0.3.0."""
    stored, _ = admitted(given)
    for size in (counts(given), counts(stored)):
        again = copy.deepcopy(given)
        again["spec"]["replicatedJobs"][0]["replicas"] = size[0]
        job_of(again).update(parallelism=size[1], completions=size[2])
        kept = restore(stored, again).jobset

        assert counts(kept) == counts(stored)
        assert validate_update(stored, json_patch(kept, kept_defaults(kept, stored))) == []


def test_spares_are_not_added_when_the_template_has_its_own_agent():
    """It states its seats itself."""
    made, _ = admitted(jobset())
    body = copy.deepcopy(made)
    body["metadata"]["annotations"][SPARES] = "2"

    assert counts(inject(body, image="i").jobset) == (2, 4, 4)


def test_spare_jobs_have_no_ranks_of_their_own():
    """The ranks are those of the other Jobs; variables with the Job's index follow its seats."""
    worker = {"env": [{"name": "SLICE", "valueFrom": SLICE}]}
    found = variables(jobset(spares=None, own={JOBS: "1"}, worker=worker))

    assert found["WORKER_WORLD_SIZE"] == "12"
    assert found["WORKER_SEATS"] == found["WORKER_JOB_PODS"] == "3"
    assert found["WORKER_SEAT_JOBS"] == "2"
    assert found["WORKER_SEAT_JOB_VARIABLES"] == "SLICE"
    assert found["WORKER_HOSTS"] == "w=2x3x2"


def test_spare_pods_and_spare_jobs_are_combined():
    """A Job uses its own spares before it gives up its seats."""
    found = variables(jobset(spares="1", notes={JOBS: "1"}))

    assert (found["WORKER_WORLD_SIZE"], found["WORKER_SEATS"]) == ("12", "3")
    assert found["WORKER_HOSTS"] == "w=2x3x2"


LEAST = keys.MIN_PODS_ANNOTATION
UNITS = keys.MIN_REPLICAS_ANNOTATION
PARTIAL = "kueue.x-k8s.io/job-min-parallelism"
ENV = f"{POD}.spec.containers[0].env[0].value"


def fewer(least="2", **fields):
    """Return the JobSet with a minimum in place of spares."""
    return jobset(spares=None, notes={LEAST: least, **fields.pop("notes", {})}, **fields)


def units(least="1", **fields):
    """Return the JobSet with a minimum of Jobs in place of spares."""
    return jobset(spares=None, notes={UNITS: least, **fields.pop("notes", {})}, **fields)


def test_agents_of_jobs_that_may_be_missing_know_the_variables_that_follow():
    """The index of the Job, their number, and the address of the first rank."""
    sources = {"SLICE": SLICE, "SLICES": REPLICAS, "FIRST": COORDINATOR}
    env = [{"name": name, "valueFrom": source} for name, source in sources.items()]
    found = variables(units(worker={"env": env}))

    kinds = ("SEAT_JOB", "SEAT_COUNT", "SEAT_ADDRESS")
    assert [found[f"WORKER_{kind}_VARIABLES"] for kind in kinds] == [
        "MEGASCALE_SLICE_ID,SLICE",
        "MEGASCALE_NUM_SLICES,SLICES",
        "MEGASCALE_COORDINATOR_ADDRESS,FIRST",
    ]
    assert (found["WORKER_HOSTS"], found["WORKER_SEATS"]) == ("w=2x3x2", "3")
    assert "WORKER_SEAT_JOBS" not in found


def test_agents_of_a_job_with_a_minimum_know_all_seats():
    """No pods are added; the rest is as with spares."""
    body = fewer()
    assert counts(admitted(body)[0]) == counts(body)
    assert variables(body)["WORKER_HOSTS"] == "w=2x3x2"


REFUSED = {
    "a minimum of 0": (fewer("0"), f"metadata.annotations[{LEAST}]", "whole number from 1"),
    "no minimum": (fewer("2.5"), f"metadata.annotations[{LEAST}]", "whole number from 1"),
    "a minimum above the pods": (
        fewer("4"),
        f"metadata.annotations[{LEAST}]",
        "has 3 pods that work",
    ),
    "a minimum in sidecar mode": (
        fewer(notes=SIDECAR),
        f"metadata.annotations[{LEAST}]",
        "cannot give a container another",
    ),
    "a minimum, not Indexed": (
        fewer(completionMode="NonIndexed"),
        "spec.replicatedJobs[0].template.spec.completionMode",
        "must be Indexed",
    ),
    "a minimum and a success policy": (
        fewer(successPolicy={"rules": [{"succeededCount": 1}]}),
        "spec.replicatedJobs[0].template.spec.successPolicy",
        "with spares or",
    ),
    "a minimum and spare jobs": (
        fewer(notes={JOBS: "1"}),
        f"metadata.annotations[{JOBS}]",
        "has whole jobs as units",
    ),
    "a minimum of pods and of jobs": (
        fewer(notes={UNITS: "1"}),
        f"metadata.annotations[{UNITS}]",
        f"remove {LEAST}",
    ),
    "a minimum of 0 jobs": (units("0"), f"metadata.annotations[{UNITS}]", "whole number from 1"),
    "a minimum above the jobs": (
        units("3"),
        f"metadata.annotations[{UNITS}]",
        "'w' has 2 jobs (replicas): state that many at most",
    ),
    "a minimum of jobs in sidecar mode": (
        units(notes=SIDECAR),
        f"metadata.annotations[{UNITS}]",
        "cannot give a container another",
    ),
    "a minimum of jobs and spare jobs": (
        units(notes={JOBS: "1"}),
        f"metadata.annotations[{JOBS}]",
        f"remove {UNITS}",
    ),
    "a minimum of jobs and a number of nodes": (
        units(worker={"env": [{"name": "NNODES", "value": "3"}]}),
        ENV,
        f"with {UNITS}, read WORLD_SIZE",
    ),
    "a number of jobs in a command": (
        units(worker={"env": [{"name": "N", "valueFrom": REPLICAS}], "args": ["-n=$(N)"]}),
        f"{POD}.spec.containers[0].args[0]",
        "read the variable in the program",
    ),
    "a minimum and Kueue's partial admission": (
        fewer(notes={PARTIAL: "2"}),
        f"metadata.annotations[{PARTIAL}]",
        "all pods are admitted",
    ),
    "a minimum and a number of nodes": (
        fewer(worker={"env": [{"name": "NNODES", "value": "3"}]}),
        ENV,
        "read WORLD_SIZE",
    ),
    "a minimum and a launcher of a fixed number of nodes": (
        fewer(worker={"args": ["torchrun", "--nnodes", "3", "train.py"]}),
        f"{POD}.spec.containers[0].args",
        "read WORLD_SIZE",
    ),
    "a minimum and a launcher in a shell": (
        fewer(worker={"command": ["sh", "-c", "accelerate launch --num_machines=3 train.py"]}),
        f"{POD}.spec.containers[0].command",
        "read WORLD_SIZE",
    ),
    "a minimum without ranks": (
        fewer(notes={keys.IN_PLACE_PROCESSES_ANNOTATION: None}),
        f"metadata.annotations[{keys.IN_PLACE_PROCESSES_ANNOTATION}]",
        "with spares or",
    ),
    "a minimum and a size of the world": (
        fewer(worker={"env": [{"name": "WORLD_SIZE", "value": "6"}]}),
        f"{POD}.spec.containers[0].env[0].name",
        "differs from process to process",
    ),
    "a wait without a minimum": (
        jobset(notes={keys.MIN_PODS_AFTER_ANNOTATION: "0"}),
        f"metadata.annotations[{keys.MIN_PODS_AFTER_ANNOTATION}]",
        f"has no effect without {LEAST}",
    ),
    "no wait": (
        fewer(notes={keys.GROW_AFTER_ANNOTATION: "soon"}),
        f"metadata.annotations[{keys.GROW_AFTER_ANNOTATION}]",
        "a number of seconds",
    ),
    "no number of jobs": (
        jobset(spares=None, notes={JOBS: "x"}),
        f"metadata.annotations[{JOBS}]",
        "whole number from 0",
    ),
    "spares of no jobs": (
        jobset(spares="1", own={JOBS: "7"}, replicas=0),
        f"{POD}.metadata.annotations[{JOBS}]",
        "has 0 jobs (replicas), spares included",
    ),
    "spare jobs without an agent": (
        with_spare_jobs(notes=NO_AGENT),
        f"metadata.annotations[{JOBS}]",
        "has no effect without the annotation",
    ),
    "spare jobs in sidecar mode": (
        with_spare_jobs(notes=SIDECAR),
        f"metadata.annotations[{JOBS}]",
        "cannot give a container another rank",
    ),
    "spare jobs, not Indexed": (
        with_spare_jobs(completionMode="NonIndexed"),
        "spec.replicatedJobs[0].template.spec.completionMode",
        "must be Indexed",
    ),
    "the index of the job in an argument": (
        with_spare_jobs(
            worker={"env": [{"name": "SLICE", "valueFrom": SLICE}], "args": ["--slice=$(SLICE)"]}
        ),
        f"{POD}.spec.containers[0].args[0]",
        "read the variable in the program",
    ),
    "no number": (jobset(spares="one"), f"metadata.annotations[{SPARES}]", "whole number from 0"),
    "negative": (jobset(spares="-1"), f"metadata.annotations[{SPARES}]", "whole number from 0"),
    "spares of no pods": (
        jobset(parallelism=0, completions=0),
        f"metadata.annotations[{SPARES}]",
        "has 0 pods, spares included",
    ),
    "not Indexed": (
        jobset(completionMode="NonIndexed"),
        "spec.replicatedJobs[0].template.spec.completionMode",
        "must be Indexed",
    ),
    "sidecar": (
        jobset(notes=SIDECAR),
        f"metadata.annotations[{SPARES}]",
        "cannot give a container another rank",
    ),
    "no agent": (
        jobset(notes=NO_AGENT),
        f"metadata.annotations[{SPARES}]",
        "has no effect without the annotation",
    ),
    "no ranks": (
        jobset(notes={keys.IN_PLACE_PROCESSES_ANNOTATION: None}),
        f"metadata.annotations[{keys.IN_PLACE_PROCESSES_ANNOTATION}]",
        "how many processes",
    ),
    "own success policy": (
        jobset(successPolicy={"rules": [{"succeededCount": 1}]}),
        "spec.replicatedJobs[0].template.spec.successPolicy",
        "the manager sets it",
    ),
    "back-off by index": (
        jobset(backoffLimitPerIndex=1),
        "spec.replicatedJobs[0].template.spec.backoffLimitPerIndex",
        "a spare may fail at any time",
    ),
    "an explicit address": (
        jobset(worker={"env": [{"name": "MASTER_ADDR", "value": "js-w-0-0"}]}),
        f"{POD}.spec.containers[0].env[0]",
        "follows its seat",
    ),
    "the index in a variable": (
        jobset(worker={"env": [{"name": "R", "value": "$(JOB_COMPLETION_INDEX)"}]}),
        f"{POD}.spec.containers[0].env[0].value",
        "could not follow a seat",
    ),
    "the index in an argument": (
        jobset(worker={"args": ["--node-rank=$(JOB_COMPLETION_INDEX)"]}),
        f"{POD}.spec.containers[0].args[0]",
        "read the variable in the program",
    ),
    "the index in a file": (
        jobset(pod={"volumes": [{"name": "v", **INDEX_FILE}]}),
        f"{POD}.spec.volumes[0].downwardAPI.items[0].fieldRef.fieldPath",
        "would keep the index of the pod",
    ),
    "the index in a projected file": (
        jobset(
            pod={"volumes": [{"name": "v"}, {"name": "p", "projected": {"sources": [INDEX_FILE]}}]}
        ),
        f"{POD}.spec.volumes[1].projected.sources[0].downwardAPI.items[0].fieldRef.fieldPath",
        "would keep the index of the pod",
    ),
    "more indexes than pods": (
        jobset(completions=6),
        "spec.replicatedJobs[0].template.spec.completions",
        "must be set and equal to each other",
    ),
    "a Job that waits for another one": (
        two_jobs(dependsOn=[{"name": "w", "status": "Ready"}]),
        "spec.replicatedJobs[1].dependsOn[0].name",
        "start together with InPlaceRestart",
    ),
    "in order": (
        two_jobs(order="InOrder"),
        "spec.startupPolicy.startupPolicyOrder",
        "start together with InPlaceRestart",
    ),
    "no start": (
        jobset(notes={START: "yes"}),
        f"metadata.annotations[{START}]",
        'must be "true" or "false"',
    ),
    "start without any spares": (
        jobset(spares=None, notes={START: "true"}),
        f"metadata.annotations[{START}]",
        f"has no effect without {SPARES}",
    ),
    "start of a gang of several Jobs": (
        jobset(notes={START: "true", keys.COSCHEDULING_ANNOTATION: "JobSet"}),
        f"metadata.annotations[{keys.COSCHEDULING_ANNOTATION}]",
        "spares fill no seat of another job",
    ),
    "start of a gang of a ReplicatedJob": (
        jobset(notes={START: "true", keys.COSCHEDULING_ANNOTATION: "ReplicatedJob"}),
        f"metadata.annotations[{keys.COSCHEDULING_ANNOTATION}]",
        "must be Job with the annotation",
    ),
    "start on a pod template": (
        jobset(own={START: "true"}),
        f"{POD}.metadata.annotations[{START}]",
        "has no effect on a pod template: set it on the JobSet",
    ),
    "a folder for each index": (
        jobset(worker={"volumeMounts": [MOUNT]}),
        f"{POD}.spec.containers[0].volumeMounts[0].subPathExpr",
        "a folder for each index cannot follow",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_jobset_is_refused_with_its_field_for(case):
    """With the value, and what would be valid."""
    body, field, reason = REFUSED[case]
    found = problems(body)

    assert any(each.startswith(f"{field}: ") and reason in each for each in found), found


@pytest.mark.parametrize(
    ("body", "field", "value", "error"),
    [
        (jobset(), "podIndex", 3, "3: is a spare"),
        (with_spare_jobs(), "jobIndex", 1, "1: is a spare job"),
        (fewer(), "podIndex", 2, "2: may be missing"),
    ],
)
def test_coordinator_must_have_a_seat(body, field, value, error):
    """Its address is that of the first rank, and follows its seat."""
    place = {"replicatedJob": "w", "jobIndex": 0, "podIndex": 0, field: value}
    body["spec"]["coordinator"] = place

    (found,) = problems(body)
    assert found.startswith(f"spec.coordinator.{field}: Invalid value: {error}")


def test_jobs_that_stay_failed_are_refused_with_spare_jobs():
    """The group would continue without their seats, and the spare Jobs would never end."""
    body = with_spare_jobs()
    body["spec"]["failurePolicy"]["rules"] = [{"name": "stays", "action": "FailJob"}]

    (found,) = problems(body)
    assert found.startswith('spec.failurePolicy.rules[0].action: Invalid value: "FailJob": a job')


def test_number_of_spare_jobs_cannot_change():
    """Ranks are built into the pods."""
    old, _ = admitted(with_spare_jobs())
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][JOBS] = "0"
    fields = [str(each).partition(":")[0] for each in validate_update(old, new)]

    assert fields == [f"metadata.annotations[{JOBS}]"]


def test_numbers_of_spares_and_pods_cannot_change():
    """Neither on the JobSet, nor on a template while the JobSet is suspended."""
    old, _ = admitted(jobset(own={SPARES: "1"}))
    old["spec"]["suspend"] = True
    new = copy.deepcopy(old)
    new["metadata"]["annotations"][SPARES] = "2"
    job_of(new)["template"]["metadata"]["annotations"][SPARES] = "2"
    fields = [str(each).partition(":")[0] for each in validate_update(old, new)]

    assert fields == [f"metadata.annotations[{SPARES}]", f"{POD}.metadata.annotations[{SPARES}]"]

    later = copy.deepcopy(old)
    later["metadata"]["annotations"][START] = "true"
    (refused,) = validate_update(old, later)
    assert str(refused).startswith(f'metadata.annotations[{START}]: Invalid value: "true": field')

    for stored in (old, admitted(fewer())[0]):
        resized = copy.deepcopy(stored)
        job_of(resized).update(parallelism=6, completions=6)
        assert any("cannot change" in str(each) for each in validate_update(stored, resized))


@pytest.mark.parametrize(
    ("scope", "start", "replicas"),
    [
        ("Job", "true", 2),
        ("JobSet", "true", 1),
        ("ReplicatedJob", "true", 1),
        ("JobSet", "false", 2),
    ],
)
def test_gang_with_spares_is_accepted_when_it_is_one_job_or_waits_for_them(scope, start, replicas):
    """A gang of several Jobs waits for all pods."""
    body = jobset(notes={START: start, keys.COSCHEDULING_ANNOTATION: scope}, replicas=replicas)

    assert problems(body) == []
