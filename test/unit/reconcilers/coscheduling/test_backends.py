"""Marks that each backend gives to gang members, and the API server's own PodGroups."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.scheduling import NATIVE_APIS
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields, marked
from jobsetpy.reconcilers.coscheduling.gangs import gangs_of
from jobsetpy.reconcilers.coscheduling.pod_groups import (
    counts,
    pod_groups,
    resizing,
    same_spec,
    workload,
)
from jobsetpy.reconcilers.rules.features import Features
from support.jobsets import decoded, jobset_json, replicated_job
from support.model_kit import builders

BETA = NATIVE_APIS[1]
COSCHEDULER, PODGROUP = SchedulerFields(backend="coscheduler"), SchedulerFields(backend="podgroup")
OTHER = {"name": "example.com/quota"}
MEMBER = keys.POD_GROUP_MEMBER_RESOURCE
NOTE = keys.COSCHEDULING_BACKEND_ANNOTATION


def make(*jobs, scope="JobSet", targets=None, restarts=0):
    """Return a JobSet with coscheduling."""
    body = jobset_json(*(jobs or (replicated_job("w", 2, parallelism=3),)))
    body["metadata"] |= {"uid": "uid-1", "annotations": {keys.COSCHEDULING_ANNOTATION: scope}}
    if targets:
        body["metadata"]["annotations"][keys.COSCHEDULING_TARGETS_ANNOTATION] = targets
    body["status"] = {"restarts": restarts}
    return decoded(JobSet, body)


@pytest.mark.parametrize(
    ("spec", "marks", "added"),
    [
        ({}, SchedulerFields(), {}),
        (
            {"schedulerName": "x"},
            SchedulerFields(scheduler_name="second", member_resource=True),
            {},
        ),
        ({"schedulingGates": [OTHER]}, COSCHEDULER, {}),
        ({"nodeName": "n"}, COSCHEDULER, {}),
        (
            {},
            SchedulerFields(backend="coscheduler", scheduler_name="second"),
            {"schedulerName": "second"},
        ),
        (
            {"schedulerName": "default-scheduler"},
            SchedulerFields(backend="coscheduler", scheduler_name="second"),
            {"schedulerName": "second"},
        ),
        (
            {"schedulerName": "own"},
            SchedulerFields(backend="coscheduler", scheduler_name="second"),
            {},
        ),
        ({}, PODGROUP, {"schedulingGroup": {"podGroupName": "g-0"}}),
    ],
)
def test_pod_spec_gets_the_marks_of_its_backend(spec, marks, added):
    """Fields that are present stay, and a scheduler that the pod has chosen stays."""
    before = dict(spec)
    assert marked(spec, marks, "g-0") == {**spec, **added}
    assert spec == before


@pytest.mark.parametrize("resources", [None, {"requests": {"cpu": "1"}}, {"limits": None}])
def test_first_container_requests_none_of_the_member_resource(resources):
    """In addition to its own; with 1, kube-scheduler would expect the resource of new nodes."""
    first = {"name": "a"} | ({} if resources is None else {"resources": resources})
    spec = {"containers": [first, {"name": "b"}]}
    found = marked(spec, SchedulerFields(backend="coscheduler", member_resource=True), "")[
        "containers"
    ]
    assert found[0]["resources"]["requests"] == {
        **(resources or {}).get("requests", {}),
        MEMBER: "0",
    }
    assert found[0]["resources"]["limits"] == {MEMBER: "0"}
    assert found[1] == {"name": "b"}


def bodies(jobset, marks, features=None):
    """Return metadata and pod template of the first Job of each ReplicatedJob."""
    first = [plan.body(0) for plan in builders(jobset, features or Features(), marks)]
    return [(body["metadata"], body["spec"]["template"]) for body in first]


def test_jobs_of_targets_are_made_for_the_backend():
    """Templates name the scheduler, Jobs and pods record the backend; Jobs of no gang do neither."""
    jobset = make(replicated_job("a"), replicated_job("b"), targets="b")
    (other, plain), (meta, template) = bodies(
        jobset, SchedulerFields(backend="coscheduler", scheduler_name="second")
    )
    assert NOTE not in other["annotations"]
    assert "schedulerName" not in plain["spec"]
    assert meta["annotations"][NOTE] == template["metadata"]["annotations"][NOTE] == "coscheduler"
    assert template["spec"]["schedulerName"] == "second"


def test_backend_is_not_recorded_when_pods_are_only_labelled():
    """Pods have the gang's labels and no annotation of a backend."""
    ((meta, template),) = bodies(make(), SchedulerFields())
    assert NOTE not in meta["annotations"] | template["metadata"]["annotations"]
    assert template["metadata"]["labels"][keys.POD_GROUP_MIN_AVAILABLE] == "6"


def test_nothing_is_marked_when_the_feature_gate_is_disabled():
    """Pod templates have no label of a gang."""
    ((meta, template),) = bodies(make(), COSCHEDULER, Features(coscheduling=False))
    assert keys.POD_GROUP_NAME not in template["metadata"]["labels"]
    assert NOTE not in meta["annotations"]


@pytest.mark.parametrize("restarts", [0, 3])
@pytest.mark.parametrize("scope", ["JobSet", "ReplicatedJob", "Job"])
def test_pods_name_the_pod_groups_that_are_created(scope, restarts):
    """Each template names a created group, and each attempt has its own groups."""
    jobset = make(replicated_job("a", 2), replicated_job("b"), scope=scope, restarts=restarts)
    gangs = gangs_of(jobset)
    named = {
        plan.body(index)["spec"]["template"]["spec"]["schedulingGroup"]["podGroupName"]
        for plan in builders(jobset, Features(), PODGROUP)
        for index in range(plan.replicated.replicas)
    }
    expected = pod_groups(BETA, gangs, {g.name: g.min_available for g in gangs}, None)
    assert named == {each.name for each in expected}
    assert all(name.endswith(f"-{restarts}") for name in named)
    assert len(named) == {"JobSet": 1, "ReplicatedJob": 2, "Job": 3}[scope]


def test_pod_groups_and_workload_belong_to_their_jobset():
    """They have its owner reference and label; groups have minimum, priority and template."""
    high = replicated_job("b", 3, parallelism=4, pod_spec={"priorityClassName": "high"})
    jobset = make(replicated_job("a", 1), high, scope="Job", targets="b")
    gangs = gangs_of(jobset)
    parent = workload(BETA, jobset, gangs)
    minima = {gang.name: 2 for gang in gangs}
    found = pod_groups(BETA, gangs, minima, parent)
    assert len(found) == 3
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": "high"}
    reference = {"workloadName": parent.name, "templateName": "b"}
    assert found[0].spec == policy | {"workloadRef": reference}
    (old, *_) = pod_groups(NATIVE_APIS[-1], gangs, minima, parent)
    reference = {"workloadName": parent.name, "podGroupTemplateName": "b"}
    assert old.spec == policy | {"podGroupTemplateRef": {"workload": reference}}
    assert [each["name"] for each in parent.spec["podGroupTemplates"]] == ["b"]
    assert parent.spec["podGroupTemplates"][0]["schedulingPolicy"]["gang"] == {"minCount": 4}
    for each in (found[0], parent):
        meta = each.body(jobset)["metadata"]
        assert meta["ownerReferences"][0]["uid"] == "uid-1"
        assert meta["labels"][keys.JOBSET_NAME] == jobset.metadata.name


@pytest.mark.parametrize(("count", "has_one"), [(8, True), (9, False)])
def test_workload_is_left_out_when_it_has_more_than_eight_templates(count, has_one):
    """PodGroups stand alone if there are more ReplicatedJobs."""
    jobset = make(*(replicated_job(f"r{n}") for n in range(count)), scope="ReplicatedJob")
    assert (workload(BETA, jobset, gangs_of(jobset)) is not None) == has_one


@pytest.mark.parametrize(
    ("scope", "titles", "templates"),
    [("JobSet", [""], ["jobset"]), ("ReplicatedJob", ["c"], ["c"]), ("Job", ["c-0", "c-1"], ["c"])],
)
def test_nothing_is_created_for_replicated_jobs_without_pods(scope, titles, templates):
    """They have neither a template nor a group, even if a minimum is given for them."""
    empty = (replicated_job("a", 0), replicated_job("b", parallelism=0))
    jobset = make(*empty, replicated_job("c", 2), scope=scope)
    gangs = gangs_of(jobset)
    made = workload(BETA, jobset, gangs).spec["podGroupTemplates"]
    assert [each["name"] for each in made] == templates
    by_title = {gang.title: gang.name for gang in gangs}
    everything = {gangs.of(item.name, at).name: 1 for item in gangs.targets for at in range(2)}
    found = pod_groups(BETA, gangs, everything, None)
    assert [each.name for each in found] == [f"{by_title[title]}-0" for title in titles]
    without = make(*empty, scope=scope)
    assert workload(BETA, without, gangs_of(without)) is None


def member(name, index, pods, backend="podgroup"):
    """Return a running Job with this number of pods at once."""
    metadata = {
        "name": f"{name}-{index}",
        "labels": {keys.REPLICATED_JOB_NAME: name, keys.JOB_INDEX: str(index)},
        "annotations": {NOTE: backend},
    }
    return decoded(Job, {"metadata": metadata, "spec": {"parallelism": pods, "completions": pods}})


@pytest.mark.parametrize(
    ("scope", "jobs", "titles"),
    [
        ("Job", [member("a", 0, 3), member("a", 1, 3)], []),
        ("Job", [member("a", 0, 3), member("a", 1, 2)], ["a-1"]),
        ("Job", [member("a", 0, 4), member("a", 1, 2)], ["a-0", "a-1"]),
        ("ReplicatedJob", [member("a", 0, 3), member("a", 1, 2)], ["a"]),
        ("JobSet", [member("a", 1, 2)], [""]),
        # Its pods name no group, so no capacity is needed for it.
        ("Job", [member("a", 0, 2, "coscheduler")], []),
        # Not a target, so it has no group, even with the annotation.
        ("JobSet", [member("b", 0, 2)], []),
        ("Job", [member("b", 0, 2), member("a", 0, 2)], ["a-0"]),
    ],
)
def test_groups_of_resized_jobs_are_absent(scope, jobs, titles):
    """Other groups stay, since pods without a node would wait for them."""
    pair = (replicated_job("a", 2, parallelism=3), replicated_job("b", parallelism=3))
    jobset = make(*pair, scope=scope, targets="a")
    gangs = gangs_of(jobset)
    by_title = {gang.title: gang.name for gang in gangs}
    assert resizing(jobset, gangs, jobs) == {by_title[title] for title in titles}


@pytest.mark.parametrize(
    ("stored", "desired", "same"), [(3, 3, True), (3, 4, False), (None, 1, False)]
)
def test_only_the_minimum_is_compared(stored, desired, same):
    """The API server drops some of the other fields and fills in others."""

    def spec(least):
        return {"schedulingPolicy": {"gang": None if least is None else {"minCount": least}}}

    extra = {"priorityClassName": "high"}
    assert same_spec({**spec(stored), "disruptionMode": "Pod"}, {**spec(desired), **extra}) == same
    lists = ({"podGroupTemplates": [{"name": "a", **spec(each)}]} for each in (stored, desired))
    assert same_spec(*lists) == same


@pytest.mark.parametrize(
    ("note", "attempt", "more", "expected"),
    [
        ("podgroup", "2", {}, True),
        ("coscheduler", "2", {}, False),
        (None, "2", {}, False),
        # These are recreated for the backend that is configured now.
        (None, "1", {}, True),
        (None, "2", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        (None, "2", {"annotations": {keys.RESTART_ANNOTATION: ""}}, True),
    ],
)
def test_pods_of_a_job_count_unless_it_stays_with_another_backend(note, attempt, more, expected):
    """A group waits only for pods that name it or will be recreated."""
    notes = {} if note is None else {NOTE: note}
    metadata = {"name": "j", "labels": {keys.RESTART_ATTEMPT: attempt}, "annotations": notes}
    assert counts(make(restarts=2), decoded(Job, {"metadata": metadata | more})) == expected
