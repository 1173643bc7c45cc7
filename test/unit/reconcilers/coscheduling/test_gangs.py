"""Gangs of a JobSet and what pod templates say about them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.api.batch import Job
from jobsetpy.api.jobset import JobSet
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.coscheduling.gangs import (
    LABELS,
    Gang,
    gangs_of,
    is_true,
    minimum,
    possible,
)
from jobsetpy.reconcilers.rules.features import Features
from support.jobsets import decoded, jobset_json, replicated_job
from support.model_kit import builders

NAME, MIN = LABELS


def make(scope, *jobs, minimum=None, targets=None, uid="uid-1", name="test-js", restarts=0, **more):
    """Return a JobSet with coscheduling as JSON."""
    body = jobset_json(*(jobs or (replicated_job("w", 2, parallelism=3),)), **more)
    body["status"] = {"restarts": restarts}
    body["metadata"] |= {"uid": uid, "name": name, "creationTimestamp": "2026-01-01T00:00:05Z"}
    notes = {
        keys.COSCHEDULING_ANNOTATION: scope,
        keys.COSCHEDULING_MIN_ANNOTATION: minimum,
        keys.COSCHEDULING_TARGETS_ANNOTATION: targets,
    }
    body["metadata"]["annotations"] = {k: v for k, v in notes.items() if v is not None}
    return body


def gangs(*args, **more):
    """Return the gangs of such a JobSet."""
    return gangs_of(decoded(JobSet, make(*args, **more)))


TWO = (replicated_job("a", 2, parallelism=3), replicated_job("b", 1, parallelism=2))
OWN = replicated_job(
    "a", 2, parallelism=3, metadata={"annotations": {keys.COSCHEDULING_MIN_ANNOTATION: "1"}}
)


@pytest.mark.parametrize(
    ("scope", "jobs", "more", "expected"),
    [
        ("JobSet", TWO, {}, [("", 8, 8)]),
        ("JobSet", TWO, {"minimum": "5"}, [("", 8, 5)]),
        ("JobSet", TWO, {"minimum": "50"}, [("", 8, 8)]),
        ("JobSet", TWO, {"targets": "b"}, [("", 2, 2)]),
        ("JobSet", TWO, {"targets": " a , b,"}, [("", 8, 8)]),
        ("ReplicatedJob", TWO, {}, [("a", 6, 6), ("b", 2, 2)]),
        ("ReplicatedJob", TWO, {"minimum": "2"}, [("a", 6, 2), ("b", 2, 2)]),
        ("ReplicatedJob", (OWN, TWO[1]), {"minimum": "2"}, [("a", 6, 1), ("b", 2, 2)]),
        ("Job", TWO, {}, [("a-0", 3, 3), ("a-1", 3, 3), ("b-0", 2, 2)]),
        ("Job", (OWN, TWO[1]), {"targets": "a"}, [("a-0", 3, 1), ("a-1", 3, 1)]),
        ("Job", (replicated_job("z", 0),), {}, []),
    ],
)
def test_gangs_follow_scope_targets_and_minimum(scope, jobs, more, expected):
    """The minimum is never higher than the gang's size."""
    found = gangs(scope, *jobs, **more)
    assert [(g.title, g.size, g.min_available) for g in found] == expected


@pytest.mark.parametrize("scope", ["", "jobset", "Everything"])
def test_jobset_has_no_gangs_when_its_scope_is_invalid(scope):
    """Admission refuses such a scope; without admission it has no effect."""
    assert gangs(scope) is None


def test_recreated_jobset_has_other_gangs():
    """Name and spec are the same, the UID is not."""
    old, new = gangs("JobSet"), gangs("JobSet", uid="uid-2")
    assert {g.name for g in old}.isdisjoint({g.name for g in new})


@pytest.mark.parametrize("scope", ["JobSet", "ReplicatedJob", "Job"])
def test_each_attempt_has_its_own_gangs(scope):
    """Names of the first have no attempt, as in old versions; the common name stays."""
    first, second, third = (gangs(scope, restarts=restarts) for restarts in range(3))
    names = [{g.name for g in found} for found in (first, second, third)]
    assert len(set.union(*names)) == sum(map(len, names))
    assert [g.pod_group for g in second] == [f"{g.name}-1" for g in first]
    assert first.common_name == third.common_name
    assert {g.name for g in gangs("JobSet")} == {"test-js-95ca075d036f5d5e"}


def test_gang_of_a_new_attempt_has_another_name():
    """1,000 pods that are deleted one by one do not count for the pods that replace them."""
    first, second = (
        plan.body(0)["spec"]["template"]["metadata"]["labels"][NAME]
        for restarts in (0, 1)
        for plan in builders(
            decoded(JobSet, make("JobSet", replicated_job("w", 2), restarts=restarts)),
            Features(),
            SchedulerFields(backend="coscheduler"),
        )
    )
    assert first != second


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True), st.integers(0, 10**9))
def test_names_of_gangs_are_valid_label_values(name, restarts):
    """For names of JobSets of any length, wherever they are cut."""
    for gang in gangs("Job", name=name, restarts=restarts):
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", gang.name)


def templates(body):
    """Return metadata of the pod templates by the name of their Job."""
    jobset = decoded(JobSet, body)
    found = {}
    for blueprint in builders(jobset):
        for index in range(blueprint.replicated.replicas):
            found[blueprint.name(index)] = blueprint.body(index)["spec"]["template"]["metadata"]
    return found


def test_pod_templates_name_their_gang():
    """Only those of targets; they have the gang's timeout as well."""
    body = make("Job", *TWO, targets="a", minimum="2")
    body["metadata"]["annotations"][keys.COSCHEDULING_TIMEOUT_ANNOTATION] = "20"
    found = templates(body)
    assert [found[n]["labels"].get(MIN) for n in sorted(found)] == ["2", "2", None]
    names = {found[name]["labels"].get(NAME) for name in found}
    assert len(names) == 3
    notes = found["test-js-a-0"]["annotations"]
    assert notes[keys.COSCHEDULING_TIMEOUT_ANNOTATION] == "20"
    assert keys.COSCHEDULING_TIMEOUT_ANNOTATION not in found["test-js-b-0"]["annotations"]


def child(name, index, *, succeeded=0, finished=None):
    """Return a Job of ReplicatedJob ``a`` or ``b`` of the JobSet."""
    conditions = [{"type": finished, "status": "True"}] if finished else []
    labels = {keys.REPLICATED_JOB_NAME: name, keys.JOB_INDEX: str(index), keys.RESTART_ATTEMPT: "0",
              keys.JOBSET_NAME: "test-js"}  # fmt: skip
    metadata = {"name": f"test-js-{name}-{index}", "uid": f"{name}{index}", "labels": labels}
    status = {"succeeded": succeeded, "conditions": conditions}
    return decoded(Job, {"metadata": metadata, "spec": {}, "status": status})


@pytest.mark.parametrize(
    ("jobs", "left"),
    [
        ([], 8),
        ([child("a", 0), child("a", 1)], 8),
        ([child("a", 0, succeeded=2)], 6),
        ([child("a", 0, succeeded=3, finished="Complete")], 5),
        ([child("a", 0, finished="Failed")], 8),
    ],
)
def test_gang_does_not_wait_for_pods_that_are_not_recreated(jobs, left):
    """Pods that have succeeded; a Job that has failed is recreated, or the JobSet fails."""
    jobset = decoded(JobSet, make("JobSet", *TWO))
    found = gangs_of(jobset)
    (gang,) = found
    assert possible(jobset, found, jobs, Features()) == {gang.name: left}


@pytest.mark.parametrize(
    ("scope", "start", "minimum", "expected"),
    [
        ("JobSet", None, None, 3),
        ("JobSet", "true", None, 2),
        ("JobSet", "true", "1", 1),
        ("JobSet", "true", "3", 2),
        ("ReplicatedJob", "true", None, 2),
        ("Job", "true", None, 2),
    ],
)
def test_gang_of_one_job_waits_for_its_seats_when_it_starts_without_spares(
    scope, start, minimum, expected
):
    """For each scope; a lower minimum counts, a higher one is cut."""
    (gang,) = gangs_of(with_spares(scope, start=start, minimum=minimum, jobs=1))

    assert gang.min_available == expected


def with_spares(scope, *, start=None, minimum=None, jobs=2):
    """Return a JobSet with Jobs of two seats and a spare; with several, one has no spares."""
    own = {"annotations": {keys.IN_PLACE_SPARES_ANNOTATION: "1"}}
    jobs = (
        replicated_job("a", jobs, parallelism=3, pod_metadata=own),
        *((replicated_job("b", 1, parallelism=2),) if jobs > 1 else ()),
    )
    policy = {"maxRestarts": 1, "restartStrategy": "InPlaceRestart"}
    body = make(scope, *jobs, minimum=minimum, failurePolicy=policy)
    if start is not None:
        body["metadata"]["annotations"][keys.START_WITHOUT_SPARES_ANNOTATION] = start
    return decoded(JobSet, body)


@pytest.mark.parametrize(
    ("scope", "start", "minimum", "expected"),
    [
        ("JobSet", None, None, [("", 8)]),
        ("JobSet", "false", None, [("", 8)]),
        ("JobSet", "true", None, [("", 8)]),
        ("JobSet", "true", "5", [("", 5)]),
        ("ReplicatedJob", None, None, [("a", 6), ("b", 2)]),
        ("ReplicatedJob", "true", None, [("a", 6), ("b", 2)]),
        ("Job", None, None, [("a-0", 3), ("a-1", 3), ("b-0", 2)]),
        ("Job", "true", None, [("a-0", 2), ("a-1", 2), ("b-0", 2)]),
    ],
)
def test_gang_waits_for_spares_unless_its_jobset_starts_without_them(
    scope, start, minimum, expected
):
    """Gangs of several Jobs wait, since that number of pods could leave seats of a Job empty."""
    found = gangs_of(with_spares(scope, start=start, minimum=minimum))

    assert [(gang.title, gang.min_available) for gang in found] == expected


@pytest.mark.parametrize(
    ("start", "succeeded", "expected"),
    [(None, 0, 3), (None, 1, 2), (None, 2, 1), ("true", 0, 2), ("true", 1, 1), ("true", 2, 0)],
)
def test_gang_needs_no_spares_when_seats_have_succeeded(start, succeeded, expected):
    """A replacement is bound late although its Job has more pods than there are nodes."""
    jobset = with_spares("JobSet", start=start, jobs=1)
    found = gangs_of(jobset)
    (gang,) = found
    left = possible(jobset, found, [child("a", 0, succeeded=succeeded)], Features())

    assert left == {gang.name: expected}
    assert minimum(gang, left[gang.name]) == max(1, expected)


@pytest.mark.parametrize(
    ("scope", "jobs", "start", "succeeded", "expected"),
    [
        ("JobSet", 1, None, 0, [2]),
        ("ReplicatedJob", 1, None, 0, [2]),
        ("JobSet", 1, "true", 0, [2]),
        ("JobSet", 1, None, 1, [1]),
        ("JobSet", 1, None, 2, [1]),
        ("Job", 2, None, 1, [1, 2, 2]),
        ("JobSet", 2, None, 0, [8]),
        ("ReplicatedJob", 2, None, 0, [6, 2]),
    ],
)
def test_gang_of_one_job_needs_only_its_seats_when_its_pods_have_worked(
    scope, jobs, start, succeeded, expected
):
    """Each of several lost pods is bound as soon as there is a node for it."""
    jobset = with_spares(scope, start=start, jobs=jobs)
    found = gangs_of(jobset)
    left = possible(jobset, found, [child("a", 0, succeeded=succeeded)], Features())

    assert [minimum(gang, left[gang.name], starting=False) for gang in found] == expected


def test_gang_does_not_count_the_spares_of_a_job_that_is_complete():
    """Spares end with their Job."""
    jobset = with_spares("JobSet", start="true")
    found = gangs_of(jobset)
    (gang,) = found
    done = child("a", 0, succeeded=2, finished="Complete")

    assert possible(jobset, found, [done], Features()) == {gang.name: 5}


GANG = Gang("n", "", 8, 6)


@pytest.mark.parametrize(
    ("label", "left", "bound", "true"),
    [
        ("6", 8, False, True),
        ("6", 4, False, False),
        ("4", 4, False, True),
        ("6", 4, True, True),
        ("5", 4, True, True),
        ("7", 8, True, False),
        ("3", 4, True, False),
        ("", 4, True, False),
        ("x", 4, True, False),
    ],
)
def test_minimum_of_bound_pods_may_be_outdated(label, left, bound, true):
    """Pods that have yet to be scheduled need the exact minimum."""
    assert is_true(label, GANG, minimum(GANG, left), bound=bound) is true
