"""A short soak: all of it works, and what it may find in half an hour is not there in seconds."""

import pytest

from hack import soak
from hack.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster():
    """One of its own: in the end a manager may have nothing left of anything."""
    with Cluster(crds=[soak.CRD]) as own:
        if own.is_existing:
            pytest.skip("the soak needs a cluster that is empty")
        yield own


async def test_a_short_soak(cluster, tmp_path):
    """JobSets of all kinds live and go; the leader is killed once; nothing is left or leaks."""
    settings = soak.Settings(seconds=10, lives=6, pace_s=0.1, seed=7, kills=1, outages=0, lease_s=6)
    outcome = await soak.soak(cluster, tmp_path, settings)
    soak.report(outcome)

    assert outcome.problems == []
    assert outcome.kills == 1
    assert sum(outcome.lived.values()) >= 6
    assert sum(outcome.steps.values()) >= 1
    assert outcome.rest.cached == 0
