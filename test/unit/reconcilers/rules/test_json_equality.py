"""Equality of two notations of a JobSet, and the notation that is stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobsetpy.api import shapes
from jobsetpy.reconcilers.rules.json_equality import quantity, rewritten, same, with_text_quantities
from jobsetpy.reconcilers.validation.defaulting import rewrite_jobset
from jobsetpy.reconcilers.validation.update import validate_update
from jobsetpy.testing import json_patch as json_patched
from support.admission.forms import CONTAINER, FORMS, JOB, SPEC, Form, pair, with_value
from support.admission.validation_kit import jobset, rjob

BASE = jobset(rjob())


def test_table_of_forms_is_large_enough() -> None:
    """At least 60 forms with different names."""
    assert len(FORMS) >= 60
    assert len({form.name for form in FORMS}) == len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_form_of_a_typed_client_is_accepted_and_not_stored(form: Form) -> None:
    """The stored text stays the same, character by character."""
    stored, back = pair(form)
    assert validate_update(stored, back) == []
    rewritten_, patch = rewrite_jobset(back, stored)
    assert rewritten_["spec"] == stored["spec"]
    assert json_patched(back, patch) == rewritten_
    assert rewrite_jobset(rewritten_, stored) == (rewritten_, [])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_manifest_is_accepted_when_the_form_of_a_typed_client_is_stored(form: Form) -> None:
    """Users may apply their manifest again."""
    written, stored = pair(form)
    assert validate_update(stored, written) == []
    assert rewrite_jobset(written, stored)[0]["spec"] == stored["spec"]


def test_change_is_stored_without_other_changes() -> None:
    """Fields that a client drops next to a changed field are restored."""
    stored = with_value(with_value(BASE, (*CONTAINER, "tty"), False), ("spec", "suspend"), True)
    new = with_value(BASE, ("spec", "suspend"), False)
    expected = with_value(stored, ("spec", "suspend"), False)
    got, patch = rewrite_jobset(new, stored)
    assert got == expected
    assert [each["path"] for each in patch] == ["/spec/replicatedJobs"]


POINTERS: list[tuple[tuple[str | int, ...], Any]] = [
    ((*JOB, "spec", "backoffLimit"), 0),
    ((*JOB, "spec", "suspend"), False),
    ((*JOB, "spec", "ttlSecondsAfterFinished"), 0),
    ((*SPEC, "automountServiceAccountToken"), False),
    ((*SPEC, "enableServiceLinks"), False),
    ((*SPEC, "securityContext"), {"runAsNonRoot": False}),
    ((*SPEC, "securityContext"), {"runAsUser": 0}),
    ((*SPEC, "terminationGracePeriodSeconds"), 0),
    ((*SPEC, "priority"), 0),
    ((*CONTAINER, "securityContext"), {"allowPrivilegeEscalation": False}),
    ((*CONTAINER, "restartPolicy"), ""),
    ((*CONTAINER, "readinessProbe"), {"terminationGracePeriodSeconds": 0}),
    ((*SPEC, "volumes"), [{"name": "v", "emptyDir": {}}]),
    ((*SPEC, "affinity"), {"podAffinity": {}}),
]


@pytest.mark.parametrize(("path", "value"), POINTERS, ids=lambda each: str(each)[-60:])
def test_zero_differs_from_absent_behind_a_pointer(path: Any, value: Any) -> None:
    """A pointer to zero is not a null pointer, and its change is refused."""
    before, after = BASE, with_value(BASE, path, value)
    for old, new in ((before, after), (after, before)):
        assert rewrite_jobset(new, old)[0] == new
        assert [each.field for each in validate_update(old, new)] == ["spec.replicatedJobs"]


RESOURCES = (*CONTAINER, "resources")


@pytest.mark.parametrize(
    ("path", "left", "right", "equal"),
    [
        (RESOURCES, {"limits": {"cpu": "1000m"}}, {"limits": {"cpu": 1}}, True),
        (RESOURCES, {"requests": {"memory": "1Gi"}}, {"requests": {"memory": "1024Mi"}}, True),
        (RESOURCES, {"requests": {"memory": "1G"}}, {"requests": {"memory": "1Gi"}}, False),
        (RESOURCES, {"limits": {"cpu": "1e3"}}, {"limits": {"cpu": "1k"}}, True),
        (RESOURCES, {"limits": {"x": "1E"}}, {"limits": {"x": "1000P"}}, True),
        (RESOURCES, {"limits": {"x": "1Ei"}}, {"limits": {"x": "1024Pi"}}, True),
        (RESOURCES, {"limits": {"cpu": "0"}}, {}, False),
        (RESOURCES, {"limits": {}}, None, True),
        (
            (*SPEC, "volumes"),
            [{"name": "v", "emptyDir": {"sizeLimit": "1Ki"}}],
            [{"name": "v", "emptyDir": {"sizeLimit": "1024"}}],
            True,
        ),
        (
            (*CONTAINER, "env"),
            [{"name": "A", "value": "1000m"}],
            [{"name": "A", "value": "1"}],
            False,
        ),
        ((*SPEC, "volumes"), [], None, True),
        ((*SPEC, "nodeSelector"), {"a": ""}, {}, False),
        ((*SPEC, "nodeSelector"), {"a": ""}, {"a": ""}, True),
        ((*SPEC, "futureField"), None, {}, False),
        ((*SPEC, "futureField"), {"a": 0}, {}, False),
        ((*CONTAINER, "args"), ["a", "b"], ["b", "a"], False),
    ],
)
def test_quantities_are_compared_by_value(path: Any, left: Any, right: Any, equal: bool) -> None:
    """Texts and unknown fields are compared as they are."""
    shape = shapes.jobset_spec()
    one, other = (with_value(BASE, path, each)["spec"] for each in (left, right))
    assert same(one, other, shape) is equal


@pytest.mark.parametrize("value", ["", "x", "1.2.3", "1Xi", True, None, "1e999"])
def test_value_that_is_no_quantity_is_unchanged(value: Any) -> None:
    """For example a text, or a number with two dots."""
    assert quantity(value) is value


@pytest.mark.parametrize(
    ("path", "number", "text"),
    [
        ((*RESOURCES, "limits", "cpu"), 0.5, "500m"),
        ((*RESOURCES, "requests", "cpu"), 1.5, "1500m"),
        ((*RESOURCES, "requests", "cpu"), 2.0, "2"),
        ((*RESOURCES, "requests", "cpu"), 1e-7, "100n"),
        ((*RESOURCES, "requests", "cpu"), 1.23e-8, "13n"),
        ((*RESOURCES, "requests", "memory"), 1e9, "1000000000"),
        ((*SPEC, "overhead", "cpu"), 0.25, "250m"),
    ],
)
def test_number_with_a_fraction_becomes_a_quantity(path: Any, number: float, text: str) -> None:
    """The schema refuses such numbers, but users write them."""
    jobset_ = with_value(BASE, path, number)
    stored, patch = rewrite_jobset(jobset_)
    assert stored == with_value(BASE, path, text)
    assert json_patched(jobset_, patch) == stored


def test_other_numbers_are_unchanged() -> None:
    """Whole numbers, and fields that are no quantities."""
    jobset_ = with_value(with_value(BASE, (*RESOURCES, "limits", "cpu"), 2), ("spec", "x"), 0.5)
    assert rewrite_jobset(jobset_) == (jobset_, [])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "a", "1", "1000m"]),
    lambda item: (
        st.lists(item, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "spec", "containers", "resources", "limits", "env", "tty"]),
            item,
        )
    ),
    max_leaves=12,
)
WHOLE = shapes.jobset_spec().fields["replicatedJobs"][0].item


@given(stored=JSON, new=JSON)
def test_rewriting_keeps_the_meaning(stored: Any, new: Any) -> None:
    """For any input the result equals the input, and a second rewrite changes nothing."""
    assert WHOLE is not None
    pod = WHOLE.fields["template"][0].fields["spec"][0].fields["template"][0]
    for shape in (WHOLE, pod):
        before = copy.deepcopy((stored, new))
        out = rewritten(stored, new, shape)
        assert same(out, new, shape)
        assert rewritten(stored, out, shape) == out
        assert same(with_text_quantities(new, shape), new, shape)
        assert (stored, new) == before
