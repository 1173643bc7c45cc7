"""What pods of groups are given by each backend, and the API server's own groups."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.coscheduling.backends import GATE, SchedulerFields, marked
from jobsetpy.reconcilers.coscheduling.gangs import gangs_of
from jobsetpy.reconcilers.coscheduling.pod_groups import (
    counts,
    pod_groups,
    resizing,
    same_spec,
    workload,
)
from jobsetpy.reconcilers.jobs.child_jobs import blueprints
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.testing.jobsets import decoded, jobset_json, replicated_job

COSCHEDULER, PODGROUP = SchedulerFields(backend="coscheduler"), SchedulerFields(backend="podgroup")
OTHER = {"name": "example.com/quota"}
MEMBER = keys.POD_GROUP_MEMBER_RESOURCE
NOTE = keys.COSCHEDULING_BACKEND_ANNOTATION


def make(*jobs, scope="JobSet", targets=None, restarts=0):
    """A JobSet that asks for coscheduling."""
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
        ({}, COSCHEDULER, {"schedulingGates": [GATE]}),
        ({"schedulingGates": [OTHER]}, COSCHEDULER, {"schedulingGates": [OTHER, GATE]}),
        ({"schedulingGates": [GATE, OTHER]}, COSCHEDULER, {}),
        ({"nodeName": "n"}, COSCHEDULER, {}),
        (
            {"schedulingGates": [GATE]},
            SchedulerFields(backend="coscheduler", scheduler_name="second"),
            {"schedulerName": "second"},
        ),
        (
            {"schedulingGates": [GATE], "schedulerName": "default-scheduler"},
            SchedulerFields(backend="coscheduler", scheduler_name="second"),
            {"schedulerName": "second"},
        ),
        (
            {"schedulingGates": [GATE], "schedulerName": "own"},
            SchedulerFields(backend="coscheduler", scheduler_name="second"),
            {},
        ),
        ({}, PODGROUP, {"schedulingGroup": {"podGroupName": "g-0"}}),
    ],
)
def test_marks(spec, marks, added):
    """Nothing that is there is lost, and pods of no scheduler are left alone."""
    before = dict(spec)
    assert marked(spec, marks, "g-0") == {**spec, **added}
    assert spec == before


@pytest.mark.parametrize("resources", [None, {"requests": {"cpu": "1"}}, {"limits": None}])
def test_one_container_asks_for_the_member_resource(resources):
    """Once for each pod, requested and limited, beside what the container asks for."""
    first = {"name": "a"} | ({} if resources is None else {"resources": resources})
    spec = {"containers": [first, {"name": "b"}]}
    found = marked(spec, SchedulerFields(backend="coscheduler", member_resource=True), "")[
        "containers"
    ]
    assert found[0]["resources"]["requests"] == {
        **(resources or {}).get("requests", {}),
        MEMBER: "1",
    }
    assert found[0]["resources"]["limits"] == {MEMBER: "1"}
    assert found[1] == {"name": "b"}


def bodies(jobset, marks, features=None):
    """Metadata of the first Job of each ReplicatedJob, and its pod template."""
    made = blueprints(jobset, features or Features(), marks)
    first = [plan.body(0) for plan in made.values()]
    return [(body["metadata"], body["spec"]["template"]) for body in first]


def test_jobs_of_targets_are_made_for_the_backend():
    """Templates have the gate, Jobs and pods say for what they were made; others have neither."""
    jobset = make(replicated_job("a"), replicated_job("b"), targets="b")
    (other, plain), (meta, template) = bodies(jobset, COSCHEDULER)
    assert NOTE not in other["annotations"]
    assert "schedulingGates" not in plain["spec"]
    assert meta["annotations"][NOTE] == template["metadata"]["annotations"][NOTE] == "coscheduler"
    assert template["spec"]["schedulingGates"] == [GATE]


def test_labels_alone_leave_no_trace_of_a_backend():
    """As it was before there were others."""
    ((meta, template),) = bodies(make(), SchedulerFields())
    assert NOTE not in meta["annotations"] | template["metadata"]["annotations"]
    assert template["metadata"]["labels"][keys.POD_GROUP_MIN_AVAILABLE] == "6"


def test_without_the_feature_gate_nothing_is_marked():
    """Neither label nor gate."""
    ((meta, template),) = bodies(make(), COSCHEDULER, Features(coscheduling=False))
    assert keys.POD_GROUP_NAME not in template["metadata"]["labels"]
    assert NOTE not in meta["annotations"]
    assert "schedulingGates" not in template["spec"]


@pytest.mark.parametrize("restarts", [0, 3])
@pytest.mark.parametrize("scope", ["JobSet", "ReplicatedJob", "Job"])
def test_pods_name_the_pod_groups_that_are_made(scope, restarts):
    """Each template's group is one of those, and each attempt has groups of its own."""
    jobset = make(replicated_job("a", 2), replicated_job("b"), scope=scope, restarts=restarts)
    groups = gangs_of(jobset)
    made = blueprints(jobset, Features(), PODGROUP)
    named = {
        plan.body(index)["spec"]["template"]["spec"]["schedulingGroup"]["podGroupName"]
        for plan in made.values()
        for index, _ in plan.names()
    }
    wanted = pod_groups(jobset, groups, {g.name: g.min_available for g in groups}, None)
    assert named == {each.name for each in wanted}
    assert all(name.endswith(f"-{restarts}") for name in named)
    assert len(named) == {"JobSet": 1, "ReplicatedJob": 2, "Job": 3}[scope]


def test_objects_are_the_jobsets_own():
    """Owner, label, minimum, priority class, and the template a group was made from."""
    high = replicated_job("b", 3, parallelism=4, pod_spec={"priorityClassName": "high"})
    jobset = make(replicated_job("a", 1), high, scope="Job", targets="b")
    groups = gangs_of(jobset)
    above = workload(jobset, groups)
    minima = {group.name: 2 for group in groups}
    found = pod_groups(jobset, groups, minima, above)
    assert len(found) == 3
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": "high"}
    reference = {"workload": {"workloadName": above.name, "podGroupTemplateName": "b"}}
    assert found[0].spec == policy | {"podGroupTemplateRef": reference}
    assert [each["name"] for each in above.spec["podGroupTemplates"]] == ["b"]
    assert above.spec["podGroupTemplates"][0]["schedulingPolicy"]["gang"] == {"minCount": 4}
    for body in (found[0].body, above.body):
        meta = body["metadata"]
        assert meta["ownerReferences"][0]["uid"] == "uid-1"
        assert meta["labels"][keys.JOBSET_NAME] == jobset.metadata.name


@pytest.mark.parametrize(("count", "has_one"), [(8, True), (9, False)])
def test_a_workload_has_no_more_than_eight_templates(count, has_one):
    """With more ReplicatedJobs the groups stand for themselves."""
    jobset = make(*(replicated_job(f"r{n}") for n in range(count)), scope="ReplicatedJob")
    assert (workload(jobset, gangs_of(jobset)) is not None) == has_one


@pytest.mark.parametrize(
    ("scope", "titles", "templates"),
    [("JobSet", [""], ["jobset"]), ("ReplicatedJob", ["c"], ["c"]), ("Job", ["c-0", "c-1"], ["c"])],
)
def test_nothing_is_made_for_those_without_pods(scope, titles, templates):
    """Neither a template nor a group, whatever minimum somebody names for it."""
    empty = (replicated_job("a", 0), replicated_job("b", parallelism=0))
    jobset = make(*empty, replicated_job("c", 2), scope=scope)
    groups = gangs_of(jobset)
    made = workload(jobset, groups).spec["podGroupTemplates"]
    assert [each["name"] for each in made] == templates
    by_title = {group.title: group.name for group in groups}
    everything = {groups.of(item.name, at).name: 1 for item in groups.targets for at in range(2)}
    found = pod_groups(jobset, groups, everything, None)
    assert [each.name for each in found] == [f"{by_title[title]}-0" for title in titles]
    without = make(*empty, scope=scope)
    assert workload(without, gangs_of(without)) is None


def member(name, index, pods, backend="podgroup"):
    """A Job that is at work, with so many pods at once."""
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
        # Its pods name no group, so nothing has to make room for it.
        ("Job", [member("a", 0, 2, "coscheduler")], []),
        # No target: whoever wrote the annotation there, no group is its own.
        ("JobSet", [member("b", 0, 2)], []),
        ("Job", [member("b", 0, 2), member("a", 0, 2)], ["a-0"]),
    ],
)
def test_groups_of_jobs_that_are_resized_are_away(scope, jobs, titles):
    """Those only, since pods without a node wait for their group meanwhile."""
    pair = (replicated_job("a", 2, parallelism=3), replicated_job("b", parallelism=3))
    jobset = make(*pair, scope=scope, targets="a")
    groups = gangs_of(jobset)
    by_title = {group.title: group.name for group in groups}
    assert resizing(jobset, groups, jobs) == {by_title[title] for title in titles}


@pytest.mark.parametrize(
    ("there", "wanted", "same"),
    [
        (3, 3, True),
        (3, 4, False),
        (None, 1, False),
    ],
)
def test_only_the_minimum_is_compared(there, wanted, same):
    """The API server drops and fills in other fields."""

    def spec(least):
        return {"schedulingPolicy": {"gang": None if least is None else {"minCount": least}}}

    extra = {"priorityClassName": "high"}
    assert same_spec({**spec(there), "disruptionMode": "Pod"}, {**spec(wanted), **extra}) == same
    theirs, ours = (
        {"podGroupTemplates": [{"name": "a", **spec(each)}]} for each in (there, wanted)
    )
    assert same_spec(theirs, ours) == same


@pytest.mark.parametrize(
    ("note", "attempt", "more", "expected"),
    [
        ("podgroup", "2", {}, True),
        ("coscheduler", "2", {}, False),
        (None, "2", {}, False),
        # These are made anew, for the backend that is chosen now.
        (None, "1", {}, True),
        (None, "2", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, True),
        (None, "2", {"annotations": {keys.RESTART_ANNOTATION: ""}}, True),
    ],
)
def test_whose_pods_a_group_waits_for(note, attempt, more, expected):
    """Not for those of a Job that was made for another backend, and stays."""
    notes = {} if note is None else {NOTE: note}
    metadata = {"name": "j", "labels": {keys.RESTART_ATTEMPT: attempt}, "annotations": notes}
    assert counts(make(restarts=2), decoded(Job, {"metadata": metadata | more})) == expected
