"""``spec.scheduling`` (KEP-969): gangs, PodGroups, and what admission refuses."""

from __future__ import annotations

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.api.meta import condition_true
from jobsetpy.api.scheduling import NATIVE_APIS, SchedulingPodGroup
from jobsetpy.reconcilers.coscheduling.backends import PODGROUP, SchedulerFields
from jobsetpy.reconcilers.coscheduling.field_validation import native_only
from jobsetpy.reconcilers.coscheduling.gangs import gangs_of
from jobsetpy.reconcilers.coscheduling.pod_groups import (
    PatchSpec,
    ReplaceObject,
    object_changes,
    pod_groups,
    workload,
)
from jobsetpy.reconcilers.jobs.child_jobs import JobTemplateBuilder, SharedParts
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update
from support.jobsets import ModelCluster, decoded, jobset_json, replicated_job

BETA = NATIVE_APIS[1]
NOTE = keys.GROUP_TEMPLATE_ANNOTATION
A, B = replicated_job("a", 2, parallelism=3), replicated_job("b", 1, parallelism=2)
AFTER = replicated_job("b", 1, parallelism=2, depends_on=[("a", "Ready")])
PRIORITY = {"priorityClassName": "high"}
TOPOLOGY = {"topology": [{"key": "rack"}]}
CLAIM = {"name": "c", "resourceClaimName": "gpu"}
ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def at_least(count):
    """Return the fields of a gang with a minimum."""
    return {"schedulingPolicy": {"gang": {"minCount": count}}}


def entry(*targets, **fields):
    """Return one of ``replicatedJobs``."""
    return {"targetReplicatedJobs": list(targets), **fields}


def groups(*entries, **fields):
    """Return the field with entries."""
    return {"replicatedJobs": list(entries), **fields}


def make(scheduling, *jobs, notes=None, status=None, **spec):
    """Return a JobSet with the field as JSON."""
    spec |= {} if scheduling is None else {"scheduling": scheduling}
    return jobset_json(*(jobs or (A, B)), annotations=notes, status=status, **spec)


def shown(jobset):
    """Return title, minimum, size and template of each gang."""
    found = gangs_of(decoded(JobSet, jobset))
    return [(g.title, g.min_available, g.size, g.template.split("-" * 2)[0]) for g in found]


@pytest.mark.parametrize(
    ("jobset", "expected"),
    [
        (make({}), [("", 8, 8, "test-js")]),
        (make(at_least(5)), [("", 5, 8, "test-js")]),
        (make({"schedulingPolicy": {"basic": {}}}), [("", 1, 8, "test-js")]),
        (make({}, A, AFTER), [("a", 6, 6, "a"), ("b", 2, 2, "b")]),
        (make({}, **ORDER), [("a", 6, 6, "a"), ("b", 2, 2, "b")]),
        (make(groups(entry("b"), entry("a", **at_least(2)))), [("a", 2, 6, "a"), ("b", 2, 2, "b")]),
        (
            make(groups(entry("a", job=at_least(1)), entry("b", job={}))),
            [("a-0", 1, 3, "a-0"), ("a-1", 1, 3, "a-1"), ("b-0", 2, 2, "b-0")],
        ),
    ],
)
def test_gangs_follow_the_field(jobset, expected):
    """Minimums are computed, and never written back; an order of starts divides the gang."""
    assert shown(jobset) == expected


def test_names_are_unique_and_stay_when_the_jobset_restarts():
    """A ReplicatedJob may be named as another one's Job, or as two others together."""
    jobs = [replicated_job(name) for name in ("a", "a-0", "b", "c", "b-c", "x" * 40, "y" * 40)]
    field = groups(
        entry("a", job={}), entry("a-0"), entry("b", "c"), entry("b-c"), entry("x" * 40, "y" * 40)
    )
    first, second = (
        list(gangs_of(decoded(JobSet, make(field, *jobs, status={"restarts": count}))))
        for count in (0, 1)
    )
    templates = [each.template for each in first]
    pod_group_names = [each.pod_group for each in first]
    assert templates[1] == "a-0"
    assert (len({*templates}), len({*pod_group_names}), len(first)) == (5, 5, 5)
    assert max(map(len, templates + pod_group_names)) <= 63
    assert [(each.pod_group, each.template) for each in second] == [
        (each.pod_group, each.template) for each in first
    ]


def test_pod_groups_have_the_fields_and_their_template():
    """Jobs name the template, pods the group."""
    jobs = [replicated_job("a", parallelism=3, pod_spec=PRIORITY), B]
    mode = {"disruptionMode": {"all": {}}}
    fields = {"schedulingConstraints": TOPOLOGY, "resourceClaims": [CLAIM], **mode}
    field = groups(entry("a", **fields), entry("b", job={"schedulingPolicy": {"basic": {}}}))
    jobset = decoded(JobSet, make(field, *jobs))
    gangs = gangs_of(jobset)
    parent = workload(BETA, jobset, gangs)
    found = pod_groups(BETA, gangs, {g.name: g.min_available for g in gangs}, parent)
    gang = {**at_least(3), **fields, **PRIORITY, "resourceClaims": (CLAIM,)}
    basic = {"schedulingPolicy": {"basic": {}}}
    reference = [{"workloadName": parent.name, "templateName": each} for each in ("a", "b-0")]
    assert [each.spec for each in found] == [
        {**gang, "workloadRef": reference[0]},
        {**basic, "workloadRef": reference[1]},
    ]
    assert parent.spec["podGroupTemplates"] == [{"name": "a", **gang}, {"name": "b-0", **basic}]
    parts = SharedParts(jobset, Features(), SchedulerFields(backend=PODGROUP))
    for item, group, template in zip(jobset.spec.replicated_jobs, found, ["a", "b-0"], strict=True):
        body = JobTemplateBuilder(parts, item).body(0)
        named = body["spec"]["template"]["spec"]["schedulingGroup"]["podGroupName"]
        assert (body["metadata"]["annotations"][NOTE], named) == (template, group.name)


def test_minimum_of_an_elastic_jobset_is_patched():
    """A group that is being deleted is replaced: pods of a resumed JobSet would keep it."""
    small, large = (
        decoded(JobSet, make({}, replicated_job("a", parallelism=count))) for count in (2, 4)
    )
    old, new = (
        pod_groups(BETA, gangs, {g.name: g.min_available for g in gangs}, None)
        for gangs in map(gangs_of, (small, large))
    )
    body = old[0].body(small)
    stored = decoded(SchedulingPodGroup, body)
    assert object_changes([stored], new) == (PatchSpec(stored, at_least(4)),)
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    going = decoded(SchedulingPodGroup, body)
    assert object_changes([going], old) == (ReplaceObject(going, old[0]),)


ENTRIES, MIN = "spec.scheduling.replicatedJobs", "schedulingPolicy.gang.minCount"
SCOPE = {keys.COSCHEDULING_ANNOTATION: "JobSet"}
LEAST = {keys.COSCHEDULING_MIN_ANNOTATION: "1"}
TEMPLATE = "spec.replicatedJobs[0].template"
NINE = [replicated_job("a", 9)]


def with_job(**job_spec):
    """Return a ReplicatedJob with fields of a Job."""
    return replicated_job("a", 2, parallelism=3, job_spec=job_spec)


@pytest.mark.parametrize(
    ("jobset", "fields"),
    [
        (make({}), []),
        (make(at_least(8)), []),
        (make(at_least(9)), [f"spec.scheduling.{MIN}"]),
        (make(at_least(0)), [f"spec.scheduling.{MIN}"]),
        (make(at_least(1), **ORDER), [f"spec.scheduling.{MIN}"]),
        (make(at_least(1), A, AFTER), [f"spec.scheduling.{MIN}"]),
        (make({"schedulingPolicy": {}}), ["spec.scheduling.schedulingPolicy"]),
        (
            make({"schedulingPolicy": {"gang": {}, "basic": {}}}),
            ["spec.scheduling.schedulingPolicy"],
        ),
        (
            make({"disruptionMode": {"all": {}, "single": {}}}),
            ["spec.scheduling.disruptionMode"],
        ),
        (
            make(groups(entry("a"), entry("b"), disruptionMode={"all": {}})),
            ["spec.scheduling.disruptionMode"],
        ),
        (make(groups(entry("a"))), [ENTRIES]),
        (make(groups(entry("a", "b"), entry())), [f"{ENTRIES}[1].targetReplicatedJobs"]),
        (make(groups(entry("a", "b", "z"))), [f"{ENTRIES}[0].targetReplicatedJobs[2]"]),
        (
            make(groups(entry("a", "b"), entry("b"))),
            [f"{ENTRIES}[0].targetReplicatedJobs[1]", f"{ENTRIES}[1].targetReplicatedJobs[0]"],
        ),
        (
            make(groups(entry("a", "b", job={}))),
            [f"{ENTRIES}[0].targetReplicatedJobs"],
        ),
        (
            make(groups(entry("a", job={}, disruptionMode={"all": {}}), entry("b"))),
            [f"{ENTRIES}[0].disruptionMode"],
        ),
        (make(groups(entry("a", job=at_least(4)), entry("b"))), [f"{ENTRIES}[0].job.{MIN}"]),
        (make(groups(entry("a", **at_least(7)), entry("b"))), [f"{ENTRIES}[0].{MIN}"]),
        (
            make(groups(entry("a", "b", resourceClaims=[CLAIM, CLAIM]))),
            [f"{ENTRIES}[0].resourceClaims[{at}].name" for at in range(2)],
        ),
        (
            make(groups(entry("a", "b", resourceClaims=[{"name": "c"}]))),
            [f"{ENTRIES}[0].resourceClaims[0]"],
        ),
        (
            make(groups(entry("a", "b", resourceClaims=[{**CLAIM, "name": n} for n in "vwxyz"]))),
            [f"{ENTRIES}[0].resourceClaims"],
        ),
        (make(groups(entry("a", job={})), *NINE), ["spec.scheduling"]),
        (make({}, *NINE), []),
        (make({}, notes=SCOPE), [f"metadata.annotations[{keys.COSCHEDULING_ANNOTATION}]"]),
        (
            make({}, replicated_job("a", metadata={"annotations": LEAST})),
            [f"{TEMPLATE}.metadata.annotations[{keys.COSCHEDULING_MIN_ANNOTATION}]"],
        ),
        (make({}, with_job(scheduling={})), [f"{TEMPLATE}.spec.scheduling"]),
        (make(None, with_job(scheduling={})), []),
        (
            make({}, replicated_job("a", pod_spec=PRIORITY), B),
            ["spec.replicatedJobs[1].template.spec.template.spec.priorityClassName"],
        ),
        (
            make({}, notes={keys.EXCLUSIVE_TOPOLOGY_ANNOTATION: "rack"}),
            [f"metadata.annotations[{keys.EXCLUSIVE_TOPOLOGY_ANNOTATION}]"] * 2,
        ),
        (
            make(groups(entry("a", "b")), **ORDER),
            ["spec.startupPolicy.startupPolicyOrder"],
        ),
    ],
)
def test_invalid_fields_are_refused_with_their_path(jobset, fields):
    """A new JobSet has the same errors as a suspended one that gets the field."""
    assert [each.field for each in validate_create(jobset)] == fields
    old = copy.deepcopy(jobset)
    old["spec"]["scheduling"] = {"schedulingPolicy": {"gang": {}}, "disruptionMode": {"all": {}}}
    for each in (old, jobset):
        each["spec"]["suspend"] = True
    if "scheduling" in jobset["spec"]:
        assert [each.field for each in validate_update(old, jobset)] == fields


@pytest.mark.parametrize(
    ("before", "after", "suspended", "fields"),
    [
        ({}, None, False, ["spec.scheduling"]),
        (None, {}, False, ["spec.scheduling"]),
        (None, {}, True, []),
        (at_least(2), at_least(3), False, ["spec.scheduling"]),
        (at_least(2), at_least(3), True, []),
        (at_least(99), at_least(99), False, []),
    ],
)
def test_field_may_change_only_while_the_jobset_is_suspended(before, after, suspended, fields):
    """A stored JobSet that breaks a rule may still be changed."""
    old, new = make(before, suspend=suspended), make(after, suspend=suspended)
    assert [each.field for each in validate_update(old, new)] == fields


def test_resize_below_the_minimum_is_refused():
    """The pods of the gang could never start."""
    old, new = (
        make(at_least(4), replicated_job("a", parallelism=count), suspend=False) for count in (4, 3)
    )
    assert [each.field for each in validate_update(old, new)] == [f"spec.scheduling.{MIN}"]
    assert validate_update(new, old) == []


def test_annotations_may_not_be_added_to_the_field():
    """A JobSet that has both already may still be changed."""
    old, new = make({}), make({}, notes=LEAST)
    path = f"metadata.annotations[{keys.COSCHEDULING_MIN_ANNOTATION}]"
    assert [each.field for each in validate_update(old, new)] == [path]
    assert validate_update(new, new) == []


def test_field_is_refused_when_its_gate_is_off():
    """The gate of the Go project."""
    off = Features(scheduling=False)
    assert [each.field for each in validate_create(make({}), features=off)] == ["spec.scheduling"]


def test_fields_that_only_native_gangs_have_are_warned_of():
    """The coscheduler ignores them."""
    spec = make(groups(entry("a", schedulingConstraints=TOPOLOGY), entry("b")))["spec"]
    field = f"{ENTRIES}[0].schedulingConstraints"
    assert [each.field for each in native_only(spec, "coscheduler")] == [field]
    assert native_only(spec, PODGROUP) == []


@pytest.mark.parametrize(("before", "after"), [(None, {}), ({}, groups(entry("a", job={})))])
def test_suspended_jobs_are_recreated_when_their_groups_change(before, after):
    """The group in a Job's template cannot change; those whose groups stay are kept."""
    cluster = ModelCluster(make(before, A, suspend=True))
    cluster.reconcile()
    old = cluster.jobs["test-js-a-0"]["metadata"]["uid"]
    cluster.change_spec(scheduling=after)
    cluster.reconcile()
    cluster.collect()
    cluster.reconcile()
    new = {each["metadata"]["uid"] for each in cluster.jobs.values()}
    cluster.change_spec(suspend=False)
    cluster.reconcile()
    gangs = gangs_of(cluster.jobset)
    notes = [each["metadata"]["annotations"].get(NOTE) for each in cluster.jobs.values()]
    assert notes == [gangs.of("a", index).template for index in range(2)]
    assert (old in new, {each["metadata"]["uid"] for each in cluster.jobs.values()}) == (False, new)
    assert condition_true(cluster.status.conditions, "Suspended") is None
