"""Validation of coscheduling."""

from __future__ import annotations

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.gangs import LABELS
from jobsetpy.reconcilers.coscheduling.validation import coscheduling_warnings
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update

SCOPE, MIN = keys.COSCHEDULING_ANNOTATION, keys.COSCHEDULING_MIN_ANNOTATION
TARGETS, TIMEOUT = keys.COSCHEDULING_TARGETS_ANNOTATION, keys.COSCHEDULING_TIMEOUT_ANNOTATION
CHECK = keys.COSCHEDULING_CAPACITY_ANNOTATION
TOPOLOGY, SELECTOR = keys.EXCLUSIVE_TOPOLOGY_ANNOTATION, keys.NODE_SELECTOR_ANNOTATION
TEMPLATE = "spec.replicatedJobs[{}].template"


def job(name, *, notes=None, labels=None, pod=None, depends=None, pods=2, **job_spec):
    """Return a ReplicatedJob with 2 Jobs of ``pods`` pods."""
    template = {"metadata": {"labels": labels or {}}}
    template["spec"] = {"containers": [{"name": "c", "image": "i"}], **(pod or {})}
    spec = {"completionMode": "Indexed", "parallelism": pods, "completions": pods, **job_spec}
    template = {"metadata": {"annotations": notes or {}}, "spec": {**spec, "template": template}}
    out = {"name": name, "groupName": "default", "replicas": 2, "template": template}
    if depends:
        out["dependsOn"] = [{"name": other, "status": "Ready"} for other in depends]
    return out


def make(notes, *jobs, order="AnyOrder"):
    """Return a JobSet of these ReplicatedJobs, by default two."""
    return {
        "metadata": {"name": "js", "namespace": "ns", "annotations": notes},
        "spec": {
            "successPolicy": {"operator": "All"},
            "startupPolicy": {"startupPolicyOrder": order},
            "replicatedJobs": list(jobs or (job("a"), job("b"))),
        },
    }


def note(name, path=""):
    """Return the field path of an annotation."""
    return f"{path}{'.' if path else ''}metadata.annotations[{name}]"


@pytest.mark.parametrize(
    ("jobset", "fields"),
    [
        (make({}), []),
        (make({SCOPE: "JobSet"}), []),
        (make({SCOPE: "JobSet", MIN: "8", TARGETS: "a,b", TIMEOUT: "80"}), []),
        (make({SCOPE: "JobSet", MIN: "9"}), [note(MIN)]),
        (make({SCOPE: "JobSet", MIN: "0"}), [note(MIN)]),
        (make({SCOPE: "JobSet", MIN: "x"}), [note(MIN)]),
        (make({SCOPE: "JobSet", MIN: "5", TARGETS: "a"}), [note(MIN)]),
        (make({SCOPE: "jobset"}), [note(SCOPE)]),
        (make({MIN: "1", TIMEOUT: "5"}), [note(SCOPE)]),
        (make({}, job("a", notes={MIN: "1"})), [note(SCOPE)]),
        (make({SCOPE: "JobSet", TARGETS: "a,x"}), [note(TARGETS)]),
        (make({SCOPE: "JobSet", TARGETS: " , "}), [note(TARGETS)]),
        (make({SCOPE: "JobSet", TIMEOUT: "841"}), [note(TIMEOUT)]),
        (make({SCOPE: "JobSet", CHECK: "false"}), []),
        (make({SCOPE: "JobSet", CHECK: "no"}), [note(CHECK)]),
        (make({SCOPE: "ReplicatedJob", MIN: "4"}), []),
        (make({SCOPE: "ReplicatedJob", MIN: "5"}), [note(MIN), note(MIN)]),
        (make({SCOPE: "Job", MIN: "3", TARGETS: "a"}), [note(MIN)]),
        (make({SCOPE: "Job"}, job("a", notes={MIN: "3"})), [note(MIN, TEMPLATE.format(0))]),
        (make({SCOPE: "Job", MIN: "9"}, job("a", notes={MIN: "2"})), []),
        (make({SCOPE: "JobSet"}, job("a", notes={MIN: "2"})), [note(MIN, TEMPLATE.format(0))]),
        (
            make({SCOPE: "Job"}, job("a", labels={LABELS[0]: "mine"})),
            [f"{TEMPLATE.format(0)}.spec.template.metadata.labels[{LABELS[0]}]"],
        ),
        (make({SCOPE: "Job", TARGETS: "b"}, job("a", labels={LABELS[0]: "mine"}), job("b")), []),
        (
            make({SCOPE: "Job"}, job("a", pod={"schedulingGroup": {"podGroupName": "g"}})),
            [f"{TEMPLATE.format(0)}.spec.template.spec.schedulingGroup"],
        ),
        (make({SCOPE: "Job"}, job("a", scheduling={})), [f"{TEMPLATE.format(0)}.spec.scheduling"]),
        (make({SCOPE: "Job", TARGETS: "b"}, job("a", scheduling={}), job("b")), []),
        (make({}, job("a", scheduling={})), []),
        (make({SCOPE: "Job", TOPOLOGY: "rack"}, job("a")), [note(TOPOLOGY)]),
        (make({SCOPE: "Job", TOPOLOGY: "rack", SELECTOR: "true"}, job("a")), []),
        (make({SCOPE: "Job", TOPOLOGY: "rack"}, job("a", pods=1)), []),
        (
            make({SCOPE: "Job"}, job("a", notes={TOPOLOGY: "rack"})),
            [note(TOPOLOGY, TEMPLATE.format(0))],
        ),
        (make({SCOPE: "JobSet"}, order="InOrder"), ["spec.startupPolicy.startupPolicyOrder"]),
        (make({SCOPE: "Job"}, order="InOrder"), []),
        (make({SCOPE: "JobSet", TARGETS: "a"}, order="InOrder"), []),
        (
            make({SCOPE: "JobSet"}, job("a"), job("b", depends=["a"])),
            ["spec.replicatedJobs[1].dependsOn[0].name"],
        ),
        (
            make(
                {SCOPE: "JobSet", TARGETS: "a,c"},
                job("a"),
                job("b", depends=["a"]),
                job("c", depends=["b"]),
            ),
            ["spec.replicatedJobs[2].dependsOn[0].name"],
        ),
        (make({SCOPE: "ReplicatedJob"}, job("a"), job("b", depends=["a"])), []),
        # No member of the gang waits for another one.
        (make({SCOPE: "JobSet", TARGETS: "a"}, job("a"), job("b", depends=["a"])), []),
        (make({SCOPE: "JobSet", TARGETS: "b,c"}, job("a"), job("b", depends=["a"]), job("c")), []),
        (
            make({SCOPE: "JobSet"}, job("a"), job("b", pod={"priorityClassName": "high"})),
            [f"{TEMPLATE.format(1)}.spec.template.spec.priorityClassName"],
        ),
        (make({SCOPE: "Job"}, job("a"), job("b", pod={"priorityClassName": "high"})), []),
        (
            make({SCOPE: "JobSet"}, job("a"), job("b", pod={"schedulerName": "other"})),
            [f"{TEMPLATE.format(1)}.spec.template.spec.schedulerName"],
        ),
        (
            make({SCOPE: "JobSet"}, job("a"), job("b", pod={"schedulerName": "default-scheduler"})),
            [],
        ),
        (make({SCOPE: "Job"}, job("a"), job("b", pod={"schedulerName": "other"})), []),
    ],
)
def test_problem_of_a_new_jobset_names_its_field(jobset, fields):
    """Each problem names one field."""
    assert [problem.field for problem in validate_create(jobset)] == fields


def test_only_new_jobsets_are_refused_when_the_feature_gate_is_disabled():
    """JobSets that already have coscheduling can still be changed."""
    off = Features(coscheduling=False)
    (problem,) = validate_create(make({SCOPE: "JobSet"}), features=off)
    assert "while the feature gate Coscheduling is disabled" in problem.message
    assert validate_create(make({}), features=off) == []
    stored = make({SCOPE: "JobSet"})
    assert validate_update(stored, copy.deepcopy(stored), features=off) == []


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ({SCOPE: "Job"}, {SCOPE: "Job"}, []),
        ({SCOPE: "Job"}, {SCOPE: "Job", MIN: "2", TIMEOUT: "9"}, []),
        ({SCOPE: "Job", MIN: "9"}, {SCOPE: "Job"}, []),
        ({SCOPE: "Job"}, {SCOPE: "Job", MIN: "-2"}, [note(MIN)]),
        ({SCOPE: "Job"}, {SCOPE: "Job", TIMEOUT: "x"}, [note(TIMEOUT)]),
        ({SCOPE: "Job"}, {SCOPE: "Job", CHECK: "False"}, [note(CHECK)]),
        ({SCOPE: "Job"}, {SCOPE: "JobSet"}, [note(SCOPE)]),
        ({SCOPE: "Job"}, {}, [note(SCOPE)]),
        ({}, {SCOPE: "Job"}, [note(SCOPE)]),
        ({SCOPE: "Job"}, {SCOPE: "Job", TARGETS: "a"}, [note(TARGETS)]),
    ],
)
def test_update_may_change_the_minimum_but_not_the_gangs(before, after, fields):
    """Pods are in their gangs already."""
    assert [p.field for p in validate_update(make(before), make(after))] == fields


def test_gang_of_a_template_is_refused_on_update_only_when_it_is_new():
    """A JobSet that was created with both can still be changed."""
    old, new = make({SCOPE: "Job"}), make({SCOPE: "Job"}, job("a", scheduling={}), job("b"))
    old["spec"]["suspend"] = new["spec"]["suspend"] = True
    found = [[p.field for p in validate_update(each, new)] for each in (old, new)]
    # Such a change is immutable anyway, also while the JobSet is suspended.
    assert found == [["spec.replicatedJobs", f"{TEMPLATE.format(0)}.spec.scheduling"], []]


def test_labels_of_gangs_are_refused_in_templates_of_a_suspended_jobset():
    """They would be merged into the templates of resumed Jobs."""
    old = make({SCOPE: "Job"})
    old["spec"]["suspend"] = True
    new = copy.deepcopy(old)
    template = new["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    template["metadata"]["labels"] = {LABELS[1]: "1"}
    path = f"{TEMPLATE.format(1)}.spec.template.metadata.labels[{LABELS[1]}]"
    assert [p.field for p in validate_update(old, new)] == [path]


@pytest.mark.parametrize(("minimum", "warnings"), [(None, 1), ("x", 1), ("0", 1), (4, 1), ("4", 0)])
def test_gang_label_without_a_valid_minimum_causes_a_warning(minimum, warnings):
    """Each pod would be a complete gang."""
    labels = {keys.POD_GROUP_NAME: "g"}
    if minimum is not None:
        labels[keys.POD_GROUP_MIN_AVAILABLE] = minimum
    template = {"spec": {"template": {"metadata": {"labels": labels}}}}
    jobset = {"spec": {"replicatedJobs": [{"name": "w", "template": template}]}}
    found = coscheduling_warnings(jobset)
    assert len(found) == warnings
    if warnings:
        assert "counts as 1" in str(found[0])
        assert keys.POD_GROUP_MIN_AVAILABLE in str(found[0])
