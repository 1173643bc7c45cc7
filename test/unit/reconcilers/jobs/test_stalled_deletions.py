"""Deleted Jobs that do not go, and for which a restart waits."""

from datetime import timedelta

import pytest

from support.jobsets import replicated_job
from support.model_kit import begin


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
def test_job_is_named_when_its_deletion_takes_longer_than_its_pods_may(strategy):
    """A condition and its event, once, until the Job is gone; a long grace period is waited for."""
    policy = {"maxRestarts": 3, "restartStrategy": strategy}
    item = replicated_job("w", 2, pod_spec={"terminationGracePeriodSeconds": 600})
    cluster = begin(item, failurePolicy=policy)
    cluster.fail("test-js-w-0")
    cluster.reconcile()
    cluster.reconcile()
    cluster.collect("test-js-w-0")
    cluster.clock += timedelta(seconds=899)
    cluster.reconcile()
    assert cluster.condition("DeletionStalled") is None

    cluster.clock += timedelta(seconds=2)
    for _ in range(2):
        cluster.reconcile()
    assert cluster.condition("DeletionStalled") == ("True", "DeletionStalled")
    found = [each for each in cluster.events if each.reason == "DeletionStalled"]
    assert [(each.type_, "test-js-w-1:" in each.message) for each in found] == [("Warning", True)]

    cluster.collect("test-js-w-1")
    cluster.reconcile()
    assert cluster.condition("DeletionStalled") == ("False", "DeletionStalled")
