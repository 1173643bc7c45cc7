"""Rules for changes of JobSets."""

import copy

import pytest

from jobsetpy.api import keys
from jobsetpy.api.annotations import PREFIX
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update
from support.admission.forms import with_value
from support.admission.validation_kit import jobset, rjob

JOBS = "spec.replicatedJobs"
POD = ("spec", "replicatedJobs", 0, "template", "spec", "template")
TWO = {"parallelism": 2, "completions": 2}


def scaled(old: dict, **counts) -> dict:
    """Return a copy whose first Job template has these counts."""
    for name, value in counts.items():
        old = with_value(old, ("spec", "replicatedJobs", 0, "template", "spec", name), value)
    return old


def finished(condition: str) -> dict:
    """Return a JobSet that has ended with this condition."""
    return {**RUNNING, "status": {"conditions": [{"type": condition, "status": "True"}]}}


RUNNING = jobset(rjob(job=TWO))
SUSPENDED = jobset(rjob(job=TWO), suspend=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("metadata", "annotations"), {"a": "b"}),
        (("metadata", "labels"), {"a": "b"}),
        (("spec", "nodeSelector"), {"a": "b"}),
        (("spec", "tolerations"), [{"operator": "Exists"}]),
        (("spec", "schedulingGates"), [{"name": "a.b/c"}]),
        (("spec", "containers", 0, "resources"), {"requests": {"cpu": "1"}, "limits": {"cpu": 2}}),
    ],
)
def test_scheduling_fields_may_change_around_a_suspension(field, value):
    """Six fields may change when a JobSet is suspended or resumed, but not while it runs."""
    path = (*POD, *field)
    assert validate_update(SUSPENDED, with_value(SUSPENDED, path, value)) == []
    assert validate_update(RUNNING, with_value(SUSPENDED, path, value)) == []
    assert validate_update(SUSPENDED, with_value(RUNNING, path, value)) == []
    assert validate_update(with_value(SUSPENDED, path, value), RUNNING) == []
    (problem,) = validate_update(RUNNING, with_value(RUNNING, path, value))
    assert (problem.field, problem.message.endswith("field is immutable")) == (JOBS, True)


def test_tolerations_are_limited_when_they_change():
    """A JobSet that already has more can still be changed and resumed."""
    many = [{"key": f"k{n}", "operator": "Exists"} for n in range(1001)]
    path = (*POD, "spec", "tolerations")
    (problem,) = validate_update(SUSPENDED, with_value(SUSPENDED, path, many))
    assert problem.field == "spec.replicatedJobs[0].template.spec.template.spec.tolerations"
    assert problem.cause == "FieldValueTooMany"
    assert validate_update(with_value(SUSPENDED, path, many), with_value(RUNNING, path, many)) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((*POD, "spec", "affinity"), {"podAffinity": {}}),
        ((*POD, "spec", "hostname"), "h"),
        ((*POD, "spec", "containers", 0, "image"), "other"),
        ((*POD, "spec", "containers", 0, "resources"), {"claims": [{"name": "c"}]}),
        ((*POD, "spec", "containers", 0), {"name": "x", "resources": {"limits": {"cpu": 1}}}),
        (("spec", "replicatedJobs", 0, "template", "spec", "backoffLimit"), 3),
        (("spec", "replicatedJobs", 0, "template", "metadata"), {"labels": {"a": "b"}}),
        (("spec", "replicatedJobs", 0, "replicas"), 2),
        (("spec", "replicatedJobs", 0, "name"), "other"),
        (("spec", "replicatedJobs"), [rjob(job=TWO), rjob("b")]),
        (("spec", "replicatedJobs"), []),
        (("spec", "replicatedJobs"), None),
        (("spec", "replicatedJobs"), ["nonsense"]),
    ],
)
def test_other_fields_of_replicated_jobs_are_immutable(path, value):
    """Also while suspended."""
    for old in (RUNNING, SUSPENDED):
        (problem,) = validate_update(old, with_value(old, path, value))
        assert problem.field == JOBS
        assert problem.cause == "FieldValueInvalid"


@pytest.mark.parametrize(
    ("path", "value", "gate"),
    [
        ((*POD, "spec", "containers", 0, "resources"), {"limits": {"cpu": 1}}, "mutable_resources"),
        (("spec", "activeDeadlineSeconds"), 5, "active_deadline"),
    ],
)
def test_field_is_refused_when_its_gate_is_off(path, value, gate):
    """A stored JobSet that has it may keep it."""
    features, new = Features(**{gate: False}), with_value(SUSPENDED, path, value)
    fields = JOBS if "replicatedJobs" in path else ".".join(path)
    assert [each.field for each in validate_update(SUSPENDED, new, features=features)] == [fields]
    assert validate_update(new, new, features=features) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SUSPENDED, with_value(SUSPENDED, ("spec", "suspend"), None)),
        (RUNNING, with_value(RUNNING, ("spec", "activeDeadlineSeconds"), 5)),
        (RUNNING, with_value(RUNNING, ("metadata", "labels"), {"a": "b"})),
        (RUNNING, with_value(RUNNING, ("spec", "ttlSecondsAfterFinished"), 5)),
        (RUNNING, with_value(RUNNING, ("spec", "failurePolicy"), {"maxRestarts": 1})),
        (RUNNING, with_value(RUNNING, (*POD, "spec", "tolerations"), [])),
        (RUNNING, scaled(RUNNING, parallelism=8, completions=8)),
        (SUSPENDED, scaled(SUSPENDED, parallelism=8, completions=8)),
        (jobset(rjob()), scaled(jobset(rjob()), parallelism=4)),
    ],
)
def test_valid_change_is_accepted(old, new):
    """It breaks no rule."""
    assert validate_update(old, new) == []


RESERVED = jobset(rjob(pod={"initContainers": [{"name": "group-scheduling-init"}]}), rjob("v"))
VOLUME = jobset(rjob(pod={"volumes": [{"name": "group-scheduling", "emptyDir": {}}]}), rjob("v"))
ORDERED = jobset(rjob(), rjob("v"), startupPolicy={"startupPolicyOrder": "InOrder"})
GROUP, POLICY = ("spec", "groupSchedulingConfig"), ("spec", "failurePolicy")
IN_PLACE = {"restartStrategy": "InPlaceRestart"}
RULE = {"name": "r", "action": "RestartJob", "targetReplicatedJobs": ["x"]}


@pytest.mark.parametrize(
    ("old", "path", "value"),
    [
        (RUNNING, GROUP, {"targetReplicatedJobs": ["x"]}),
        (VOLUME, GROUP, {}),
        (ORDERED, GROUP, {"timeoutAfterSeconds": 5}),
        (RUNNING, POLICY, {"rules": [RULE]}),
        (ORDERED, POLICY, IN_PLACE),
    ],
)
def test_added_policies_are_checked_as_at_creation(old, path, value):
    """The schema only compares policies that were present before."""
    new = with_value(old, path, value)
    problems = validate_update(old, new)
    assert problems
    assert problems == [each for each in validate_create(new) if each not in validate_create(old)]
    # A stored JobSet stays changeable: nothing is checked twice.
    assert validate_update(new, with_value(new, ("spec", "ttlSecondsAfterFinished"), 5)) == []


def test_stored_jobset_with_a_reserved_name_is_changeable_until_it_gets_a_group():
    """It was stored before the name was reserved; in a startup group its pods would clash."""
    assert (
        validate_update(RESERVED, with_value(RESERVED, ("spec", "ttlSecondsAfterFinished"), 5))
        == []
    )
    (problem,) = validate_update(RESERVED, with_value(RESERVED, GROUP, {}))
    assert problem in validate_create(RESERVED)


@pytest.mark.parametrize(
    ("path", "value"),
    [(GROUP, {"targetReplicatedJobs": ["w"]}), (POLICY, {"rules": [{**RULE, "targetReplicatedJobs": ["w"]}]})],
)  # fmt: skip
def test_valid_policies_may_be_added(path, value):
    """Neither a startup group nor a failure policy has to be present from the beginning."""
    assert validate_update(RUNNING, with_value(RUNNING, path, value)) == []


def test_feature_gates_apply_to_added_policies():
    """As they do at creation."""
    new = with_value(RUNNING, POLICY, IN_PLACE)
    (problem,) = validate_update(RUNNING, new, features=Features(in_place_restart=False))
    assert "InPlaceRestart is disabled" in problem.message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (RUNNING, scaled(RUNNING, parallelism=0, completions=0), [("parallelism", ">= 1"), ("completions", ">= 1")]),
        (RUNNING, scaled(RUNNING, parallelism=0, completions=None), [("parallelism", ">= 1"), ("completions", "must stay set")]),
        (RUNNING, scaled(RUNNING, completions=0, parallelism=None), [("parallelism", "must stay set"), ("completions", ">= 1")]),
        (RUNNING, scaled(RUNNING, parallelism=None), [("parallelism", "must stay set")]),
        (RUNNING, scaled(RUNNING, completions=None), [("completions", "must stay set")]),
        (RUNNING, scaled(RUNNING, parallelism=None, completions=None), [("parallelism", "must stay set"), ("completions", "must stay set")]),
        (RUNNING, scaled(RUNNING, parallelism=None, completions=1), [("parallelism", "must stay set")]),
        (SUSPENDED, scaled(SUSPENDED, parallelism=None), [("parallelism", "must stay set")]),
        (RUNNING, scaled(RUNNING, parallelism=4, completions=5), [("completions", "must be equal to parallelism for Elastic Indexed Jobs")]),
        (finished("Completed"), scaled(finished("Completed"), parallelism=8, completions=8), [("", "Forbidden")]),
        (finished("Failed"), scaled(finished("Failed"), parallelism=0, completions=3), [("", "Forbidden")]),
    ],
)  # fmt: skip
def test_refused_scaling_names_its_fields(old, new, expected):
    """There is no further problem about immutable fields."""
    problems = validate_update(old, new)
    where = f"{JOBS}[0].template.spec"
    assert [problem.field for problem in problems] == [
        f"{where}.{field}" if field else where for field, _ in expected
    ]
    for problem, (_, words) in zip(problems, expected, strict=True):
        assert words in problem.message


@pytest.mark.parametrize("name", ["JOBSET_AGENT_WORKER_WORLD_SIZE", "WORKER_WORLD_SIZE"])
def test_pods_with_ranks_cannot_be_scaled(name):
    """The template contains the number of all ranks, which would be wrong."""
    worker = {"name": "c", "image": "i", "env": [{"name": name, "value": "16"}]}
    old = jobset(rjob(job=TWO, pod={"containers": [worker]}), rjob("v", job=TWO))
    (problem,) = validate_update(old, scaled(old, parallelism=8, completions=8))
    assert problem.field == f"{JOBS}[0].template.spec.parallelism"
    assert f"{name} of container 'c' is 16" in problem.message

    grown = copy.deepcopy(old)
    grown["spec"]["replicatedJobs"][1]["template"]["spec"] |= {"parallelism": 8, "completions": 8}
    assert validate_update(old, grown) == []


def test_scaling_does_not_hide_another_change():
    """Replicas are immutable even if the scaling is valid."""
    new = scaled(RUNNING, parallelism=8, completions=8)
    new = with_value(new, ("spec", "replicatedJobs", 0, "replicas"), 2)
    assert [problem.field for problem in validate_update(RUNNING, new)] == [JOBS]


def test_reordered_entries_are_refused_without_scaling_problems():
    """Scaling compares entries by name, but their order is immutable."""
    first = rjob("a", job={"completionMode": "", **TWO})
    old = jobset(first, rjob("b", job={"completionMode": ""}))
    new = copy.deepcopy(old)
    new["spec"]["replicatedJobs"].reverse()
    new = scaled(new, parallelism=8, completions=8)
    assert [problem.field for problem in validate_update(old, new)] == [JOBS]


@pytest.mark.parametrize("elastic", [True, False])
def test_only_indexed_jobs_of_elastic_jobsets_scale(elastic):
    """Other Jobs never scale, and Indexed ones only with the feature gate."""
    features = Features(elastic_jobset=elastic)
    non_indexed = jobset(rjob(job={**TWO, "completionMode": "NonIndexed"}))
    new = scaled(non_indexed, parallelism=4, completions=4)
    assert [p.field for p in validate_update(non_indexed, new, features=features)] == [JOBS]
    new = scaled(RUNNING, parallelism=8, completions=8)
    fields = [p.field for p in validate_update(RUNNING, new, features=features)]
    assert fields == ([] if elastic else [JOBS])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "a.b/c"),
        ("a.b/c", None),
        ("a.b/c", "a.b/d"),
        (None, "jobset.sigs.k8s.io/jobset-controller"),
    ],
)
def test_managed_by_is_immutable(before, after):
    """It cannot be set, removed or replaced."""
    old = with_value(SUSPENDED, ("spec", "managedBy"), before)
    (problem,) = validate_update(old, with_value(old, ("spec", "managedBy"), after))
    assert problem.field == "spec.managedBy"
    assert "field is immutable" in problem.message


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("in-place-restart", ("fast", "off")),
        ("in-place-restart-preload", ("auto", "torch")),
        ("coscheduling", ("JobSet", "Job")),
    ],
)
def test_error_says_how_to_change_an_annotation_that_is_built_into_pods(name, values):
    """With its field, its value and the reason."""
    word = {keys.IN_PLACE_RESTART_ANNOTATION: "fast"}
    old, new = (
        with_value(RUNNING, ("metadata", "annotations"), {**word, f"{PREFIX}{name}": value})
        for value in values
    )
    problems = {each.field: each.message for each in validate_update(old, new)}

    advice = "; to change it, delete the JobSet and create it again"
    assert problems[f"metadata.annotations[{PREFIX}{name}]"].endswith(advice)


def test_problems_are_in_order_and_inputs_are_unchanged():
    """Scaling comes first, then the list of ReplicatedJobs, then managedBy."""
    new = with_value(scaled(RUNNING, parallelism=3), ("spec", "replicatedJobs", 0, "replicas"), 2)
    new = with_value(new, ("spec", "managedBy"), "a.b/c")
    kept = copy.deepcopy((RUNNING, new))
    fields = [problem.field for problem in validate_update(RUNNING, new)]
    assert fields == [f"{JOBS}[0].template.spec.completions", JOBS, "spec.managedBy"]
    assert (RUNNING, new) == kept


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (None, {"replicatedJob": "w"}, None),
        (None, {"replicatedJob": "nope"}, "does not exist"),
        ({"replicatedJob": "w"}, {"replicatedJob": "w", "podIndex": 2}, "pod index 2"),
        ({"replicatedJob": "w"}, {"replicatedJob": "w", "jobIndex": 1}, "job index 1"),
        ({"replicatedJob": "nope"}, {"replicatedJob": "nope"}, None),
        ({"replicatedJob": "nope"}, None, None),
    ],
)
def test_changed_coordinator_is_checked_as_at_creation(before, after, problem):
    """An unchanged one is not checked."""
    running = jobset(rjob(job={**TWO, "completionMode": "Indexed"}))
    old, new = (with_value(running, ("spec", "coordinator"), each) for each in (before, after))
    problems = [str(each) for each in validate_update(old, new)]

    assert len(problems) == (problem is not None)
    assert problem is None or problem in problems[0]
