"""What begins restarts in place, in numbers."""

from __future__ import annotations

import pytest

from jobsetpy.observability import metrics


@pytest.mark.parametrize(
    ("code", "label"), [(7, "7"), (255, "255"), (256, "other"), (-1, "other"), (None, "")]
)
def test_exit_codes_are_bounded(code, label):
    """A kubelet reports 0 to 255; whatever else a status claims shares one series."""
    labels = {"cause": "container_failed", "exit_code": label}
    name = "jobset_in_place_restart_causes_total"
    before = metrics.REGISTRY.get_sample_value(name, labels) or 0
    metrics.in_place_restart_began("container_failed", code)

    assert before + 1 == metrics.REGISTRY.get_sample_value(name, labels)
