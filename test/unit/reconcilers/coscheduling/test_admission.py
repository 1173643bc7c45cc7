"""Admission of gang members."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.admission import add_marks, member_problem
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.testing import json_patch

ON = SchedulerFields(backend="coscheduler")
FULL = SchedulerFields(backend="coscheduler", scheduler_name="gangs", member_resource=True)
NAME, MIN = keys.POD_GROUP_NAME, keys.POD_GROUP_MIN_AVAILABLE
MEMBER = keys.POD_GROUP_MEMBER_RESOURCE


def pod(labels=None, **spec):
    """Return a pod that is a member of a gang, unless other labels are given."""
    metadata = {"labels": {NAME: "g", MIN: "2"} if labels is None else labels}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}}


@pytest.mark.parametrize("new", [pod(nodeName="n"), pod({}), pod({NAME: ""}), pod({MIN: "2"})])
def test_pods_that_are_bound_or_in_no_gang_are_unchanged(new):
    """The scheduler does not take them for a gang."""
    assert add_marks(new, FULL) == []


@pytest.mark.parametrize("backend", ["labels", "podgroup"])
def test_other_backends_add_nothing(backend):
    """Pods of these backends are marked by the manager or need no marks."""
    marks = SchedulerFields(backend=backend, scheduler_name="gangs", member_resource=True)
    assert add_marks(pod(), marks) == []


@pytest.mark.parametrize(
    ("given", "scheduler"), [(None, "gangs"), ("default-scheduler", "gangs"), ("own", "own")]
)
def test_pod_gets_scheduler_and_member_resource(given, scheduler):
    """A scheduler that the pod has chosen stays; the first container requests the resource."""
    containers = [{"name": "a", "resources": {"requests": {"cpu": "1"}}}, {"name": "b"}]
    new = pod(containers=containers, **({} if given is None else {"schedulerName": given}))
    spec = json_patch(new, add_marks(new, FULL))["spec"]
    assert spec["schedulerName"] == scheduler
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "1", MEMBER: "0"},
        "limits": {MEMBER: "0"},
    }
    assert spec["containers"][1] == {"name": "b"}


def test_containers_are_unchanged_when_one_requests_the_member_resource():
    """The resource is requested once per pod, by any of its containers."""
    requesting = {"name": "b", "resources": {"requests": {MEMBER: "1"}, "limits": {MEMBER: "1"}}}
    new = pod(containers=[{"name": "a"}, requesting], schedulerName="own")
    assert add_marks(new, FULL) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.text(max_size=3), item, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(
    labels=st.dictionaries(st.sampled_from([NAME, MIN, "app"]), st.text(max_size=3)),
    scheduler=st.none() | st.sampled_from(["", "default-scheduler", "own"]),
    resources=st.none() | st.fixed_dictionaries({}, optional={"limits": st.just({"cpu": "1"})}),
    marks=st.sampled_from([ON, FULL, SchedulerFields()]),
)
def test_marks_are_added_once_when_admission_runs_twice(labels, scheduler, resources, marks):
    """The patch applies to its pod, and a second one is empty."""
    new = pod(labels, **({} if scheduler is None else {"schedulerName": scheduler}))
    if resources is not None:
        new["spec"]["containers"][0]["resources"] = resources
    made = json_patch(new, add_marks(new, marks))
    assert add_marks(made, marks) == []


@given(JSON)
def test_fields_of_wrong_types_are_left_to_the_schema(value):
    """They raise no error, whichever field they are in."""
    for new in (
        {"metadata": value, "spec": value},
        {"metadata": {"labels": value}, "spec": {"containers": value}},
        {"metadata": {"labels": {NAME: value, MIN: value}}, "spec": {"schedulingGates": value}},
        {"metadata": {"labels": {NAME: "g"}}, "spec": {"containers": [{"resources": value}]}},
    ):
        assert isinstance(add_marks(new, FULL), list)
        member_problem(new)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({NAME: "g", MIN: "1"}, None),
        ({NAME: "g", MIN: "2147483647"}, None),
        ({NAME: "", MIN: "x"}, None),
        ({MIN: "x"}, None),
        ({NAME: "g"}, "Required value: says how many pods of the group 'g' it takes"),
        ({NAME: "g", MIN: ""}, "must be a number from 1"),
        ({NAME: "g", MIN: "0"}, "must be a number from 1"),
        ({NAME: "g", MIN: "-1"}, "must be a number from 1"),
        ({NAME: "g", MIN: "1.5"}, "must be a number from 1"),
        ({NAME: "g", MIN: "2147483648"}, "must be a number from 1"),
    ],
)
def test_member_with_an_invalid_minimum_is_refused(labels, words):
    """A gang is named by both labels, and its minimum is a number."""
    problem = member_problem(pod(labels))
    if words is None:
        assert problem is None
    else:
        assert problem.field == f"metadata.labels[{MIN}]"
        assert words in problem.message
