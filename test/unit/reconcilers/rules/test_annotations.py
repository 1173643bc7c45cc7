"""Annotations that nothing reads, and the table that names all others."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from jobsetpy.api import keys
from jobsetpy.api.annotations import ALPHA_PREFIX, PREFIX, SETTINGS, TABLE, read
from jobsetpy.kubectl.manifests import judge
from jobsetpy.reconcilers.rules.annotations import check_annotations
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update
from support.admission.validation_kit import jobset, rjob
from support.restarts import injection_kit

ROOT = Path(__file__).resolve().parents[4]
POD = "spec.replicatedJobs[0].template.spec.template."
JOB = "spec.replicatedJobs[0].template."
CASES = {
    "hang-second": ({"in-place-restart-hang-second": "5"}, "", "hang-seconds?"),
    "heartbeat": ({"in-place-restart-heartbeat": "auto"}, "", "heartbeat-seconds?"),
    "no progress": ({"in-place-restart-max-no-progress": "3"}, "", "max-without-progress?"),
    "restrat": ({"in-place-restrat": "fast"}, "", "in-place-restart?"),
    "fsat": ({"in-place-restart": "fsat"}, "", 'must be "fast" or "off"'),
    "atuo": ({"in-place-restart-preload": "atuo"}, POD, 'did you mean "auto"?'),
    "the ring on a template": ({"in-place-restart-heartbeat-seconds": "1"}, POD, "on the JobSet"),
    "a setting on a Job": ({"in-place-restart-preload": "auto"}, JOB, "JobSet or pod template"),
    "gangs": ({"coscheduling-scope": "Job"}, "", "nothing reads this annotation"),
}
WARNED = {
    "typing error": (f"{ALPHA_PREFIX}exclusive-topologie", f"{ALPHA_PREFIX}exclusive-topology?"),
    "without its beginning": (
        f"{PREFIX}spares",
        "did you mean jobset.sigs.k8s.io/in-place-restart-spares?",
    ),
    "new elsewhere": (f"{PREFIX}elastic-size", "nothing reads this annotation: remove it"),
    "wrong domain": ("jobset.x-k8s.io/in-place-restart", f"did you mean {PREFIX}in-place-restart?"),
    "no domain": ("coscheduling", f"did you mean {PREFIX}coscheduling?"),
    "report": (keys.EPOCH_ANNOTATION, "is written by programs"),
}


DIGITS = ("", "0", "-1", "1.5", "5m", "03", "\u0663", "9" * 5000)
"""No whole numbers from 1; U+0663 is a digit."""
INVALID = {
    keys.IN_PLACE_AGENT_ANNOTATION: ("", "both"),
    keys.IN_PLACE_GRACE_ANNOTATION: ("", "-1", "86401"),
    keys.IN_PLACE_END_CODES_ANNOTATION: ("0", "256", "1;2", ",".join(map(str, range(1, 99)))),
    keys.IN_PLACE_BARRIER_PORT_ANNOTATION: (*DIGITS, "65536"),
    keys.IN_PLACE_PROCESSES_ANNOTATION: (*DIGITS, "65"),
    keys.IN_PLACE_HANG_ANNOTATION: (*DIGITS, "604801", "often"),
    keys.IN_PLACE_HANG_FIRST_ANNOTATION: (*DIGITS, "auto"),
    keys.IN_PLACE_HANG_SECTIONS_ANNOTATION: ("", "checkpoint"),
    keys.IN_PLACE_HANG_SIGNAL_ANNOTATION: ("SIGKILL", "HUP HUP"),
    keys.IN_PLACE_HEALTH_ANNOTATION: (" ", "true\0", "x" * 4097),
    keys.IN_PLACE_HEALTH_SECONDS_ANNOTATION: ("0", "2s"),
    keys.IN_PLACE_HEALTH_INTERVAL_ANNOTATION: ("1m",),
    keys.IN_PLACE_HEARTBEAT_ANNOTATION: (
        "",
        "0",
        "0.05",
        "10.1",
        "soon",
        "-1",
        "1e0",
        "\u0663",
        "0.5s",
    ),
    keys.MAX_WITHOUT_PROGRESS_ANNOTATION: (*DIGITS, "100001"),
    keys.AFTER_SUCCESS_ANNOTATION: ("Recreate ",),
    keys.RESTART_BACKOFF_ANNOTATION: ("soon", "-1s"),
    keys.RESTART_BACKOFF_RESET_ANNOTATION: ("", "0", "9999h"),
    keys.MAX_RESTARTS_WINDOW_ANNOTATION: ("1d", "0s"),
    keys.LOST_NODE_DEADLINE_ANNOTATION: ("9s", "25h", "soon"),
}


@pytest.mark.parametrize("name", INVALID)
def test_value_is_refused_with_what_would_be_valid(name):
    """At creation and when it is changed, but not while it stays; readers take it as unset."""
    for value in (*INVALID[name], 1, ["x"]):
        old, new = jobset(rjob()), jobset(rjob())
        new["metadata"]["annotations"] = {name: value}
        for problems in (validate_create(new), check_annotations(new, old).errors):
            (problem,) = [each for each in problems if name in each.field]
            assert problem.field == f"metadata.annotations[{name}]"
            must = "must be text in quotes: " if value == 1 else "must be "
            assert f": {must}" in problem.message
        assert check_annotations(new, new).errors == []
        assert read(name, {name: value}, default="unset") == "unset"


def annotated(notes: dict[str, str], path: str = "") -> dict:
    """Return a valid JobSet with a supervisor, and annotations at a path."""
    body = injection_kit.jobset(mode="supervisor")
    job = body["spec"]["replicatedJobs"][0]["template"]
    holder = {"": body, JOB: job, POD: job["spec"]["template"]}[path]
    holder.setdefault("metadata", {}).setdefault("annotations", {}).update(notes)
    return body


@pytest.mark.parametrize("case", CASES)
def test_own_annotation_is_refused_when_it_is_misspelt(case):
    """With its field, its value and the name or value that was probably meant."""
    notes, path, why = CASES[case]
    ((name, value),) = notes.items()
    body = annotated({f"{PREFIX}{name}": value}, path)
    found = [str(each) for each in check_annotations(body).errors]

    assert len(found) == 1
    assert found[0].startswith(
        f'{path}metadata.annotations[{PREFIX}{name}]: Invalid value: "{value}"'
    )
    assert why in found[0]
    assert found[0] in judge(body, Features()).errors


@pytest.mark.parametrize("case", WARNED)
def test_other_annotation_causes_a_warning_when_nothing_reads_it(case):
    """Admission accepts it, since another project may read it; lint does not."""
    name, why = WARNED[case]
    body = annotated({name: "x"})
    (warning,) = check_annotations(body).warnings

    assert check_annotations(body).errors == []
    assert why in str(warning)
    assert str(warning) in judge(body, Features()).errors


def test_update_is_checked_for_changes_only():
    """A stored JobSet stays writable, whatever an earlier release accepted."""
    notes = {f"{PREFIX}in-place-restart-hang-second": "5", keys.LOST_NODE_DEADLINE_ANNOTATION: "x"}
    old = jobset(rjob())
    old["metadata"]["annotations"] = notes
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] |= {f"{PREFIX}coscheduling-scop": "Job"}

    assert validate_update(old, copy.deepcopy(old)) == []
    assert [each.field for each in validate_update(old, new)] == [
        f"metadata.annotations[{PREFIX}coscheduling-scop]"
    ]


def test_annotations_of_other_projects_are_accepted():
    """Those of Kueue, Trainer and Go clients of JobSet."""
    notes = dict.fromkeys(
        (
            keys.EXCLUSIVE_TOPOLOGY_ANNOTATION,
            keys.NODE_SELECTOR_ANNOTATION,
            keys.SKIP_SUSPEND_ANNOTATION,
            keys.DISABLE_IN_PLACE_ANNOTATION,
            "kueue.x-k8s.io/podset-required-topology",
            "trainer.kubeflow.org/podgroup",
        ),
        "x",
    )
    body = jobset(rjob())
    body["metadata"]["annotations"] = notes

    assert validate_create(body) == []
    assert check_annotations(body).warnings == []


@pytest.mark.parametrize("name", TABLE)
def test_row_is_complete(name):
    """Each default is a valid value or a text, each page exists, and invalid values read as unset."""
    row = TABLE[name]

    assert name.startswith((PREFIX, ALPHA_PREFIX))
    assert read(name, {name: 5}, default="unset") == "unset"
    if name in SETTINGS:
        words = " " in row.default or row.default in ("", "all")
        assert (ROOT / "docs" / row.page).exists()
        assert words or row.problem(row.default) == ""


def test_thousands_of_unknown_annotations_are_checked_quickly():
    """A guess takes a millisecond; only the first findings have one."""
    body = annotated({f"{PREFIX}in-place-restart-hang-second{at}": "5" for at in range(3000)})
    found = [str(each) for each in check_annotations(body).errors]

    assert len(found) == 3000
    assert [sum(word in each for each in found) for word in ("did you mean", "remove it")] == [
        8,
        2992,
    ]
