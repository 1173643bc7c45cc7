"""A short soak: all of its parts work, although leaks would show only after half an hour."""

import math

import pytest

from hack import soak
from support import patience
from support.coscheduling.coscheduler_process import ExtenderSite

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(tmp_path):
    """A cluster of its own: in the end a manager may have no object left."""
    site = ExtenderSite(tmp_path / "extender")
    with soak.new_cluster(site) as own:
        if own.is_existing:
            pytest.skip("the soak needs a cluster that is empty")
        yield own, site


async def test_short_soak_leaves_nothing_behind(cluster, tmp_path):
    """JobSets of all kinds are created and deleted; the leader is killed once; nothing leaks."""
    short = {"seconds": patience.scaled(10), "lease_s": math.ceil(patience.scaled(6))}
    settings = soak.Settings(**short, lives=6, pace_s=0.1, seed=7, kills=1, outages=0)
    outcome = await soak.soak(cluster[0], tmp_path, settings, cluster[1])
    soak.report(outcome)

    assert outcome.problems == []
    assert outcome.kills == 1
    assert sum(outcome.lived.values()) >= 6
    assert sum(outcome.steps.values()) >= 1
    assert outcome.rest.cached == 0
