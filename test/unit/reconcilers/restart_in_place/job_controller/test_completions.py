"""Pods that complete an index, and pods that end without completing anything."""

from __future__ import annotations

import pytest

from jobsetpy.reconcilers.restart_in_place.job_controller.completions import completion_of
from support.restarts.epoch_plans import pod


@pytest.mark.parametrize(
    ("fields", "completes"),
    [
        ({}, "0"),
        ({"deleted": True}, ""),
        ({"tracked": False}, ""),
        ({"conditions": ["TerminationByKubelet"]}, ""),
        ({"conditions": ["EvictionByEvictionAPI"]}, "0"),
    ],
    ids=["plain", "deleted", "uncounted", "ended by its kubelet", "eviction that never came"],
)
def test_succeeded_pod_completes_its_index_unless_it_was_interrupted(fields, completes):
    """A pod that saves and exits with 0 because it is ended has not done its work."""
    reasons = fields.pop("conditions", ())
    notices = [{"type": "DisruptionTarget", "status": "True", "reason": one} for one in reasons]
    one = pod(index=0, phase="Succeeded", conditions=notices, **fields)

    assert completion_of(one) == completes
