"""Annotation about deleted pods of JobSets that do not restart in place."""

from __future__ import annotations

import pytest

from jobsetpy.api import keys
from jobsetpy.reconcilers.validation.create import validate_create
from jobsetpy.reconcilers.validation.update import validate_update
from support.admission.validation_kit import jobset, rjob

NAME = keys.REPLACE_DELETED_ANNOTATION
FIELD = f"metadata.annotations[{NAME}]"


def annotated(value, **spec):
    """Return a JobSet with the annotation."""
    body = jobset(rjob(), **spec)
    body["metadata"]["annotations"] = {NAME: value}
    return body


@pytest.mark.parametrize("value", ["Immediately", "AfterBackoff"])
def test_values_are_accepted(value):
    """At creation, and whenever the annotation changes."""
    assert validate_create(annotated(value)) == []
    assert validate_update(jobset(rjob()), annotated(value)) == []


def test_annotation_is_refused_when_the_jobset_restarts_in_place():
    """Its deleted pods are replaced immediately in any case."""
    old = jobset(rjob(), failurePolicy={"restartStrategy": "InPlaceRestart"})
    new = annotated("Immediately", failurePolicy={"restartStrategy": "InPlaceRestart"})
    (problem,) = validate_update(old, new)

    assert problem.field == FIELD
    assert "always replaced immediately: remove it" in problem.message
