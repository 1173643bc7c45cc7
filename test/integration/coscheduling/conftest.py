"""One control plane for the tests of gangs, whose scheduler calls a coscheduler for each bind."""

from contextlib import asynccontextmanager

import pytest

from hack.cluster import Cluster
from support.cluster.install import connected, create_namespace
from support.coscheduling.coscheduler_process import ExtenderSite
from support.coscheduling.gangs_kit import Gangs

SYSTEM = "jobset-system"


@pytest.fixture(scope="package")
def gang_place(tmp_path_factory):
    """The cluster, and the site at which its scheduler expects the coscheduler."""
    site = ExtenderSite(tmp_path_factory.mktemp("extender"))
    # Short back-off of pods, which each test waits for several times.
    config = site.scheduler_config() | {"podMaxBackoffSeconds": 2}
    with Cluster(scheduler_config=config, controller_manager=False) as cluster:
        if cluster.is_existing:
            pytest.skip("its scheduler has no extender")
        yield cluster, site


@pytest.fixture
def gangs(gang_place, tmp_path):
    """Function that prepares nodes and pods for one test, and runs a coscheduler with these flags."""
    cluster, site = gang_place

    @asynccontextmanager
    async def opened(*arguments, start=True, **given):
        async with connected(cluster.kubeconfig, qps=0) as client:
            await create_namespace(client, SYSTEM)
            rig = Gangs(cluster, site, client, tmp_path / "coscheduler.log", arguments, given)
            async with rig.running(start=start):
                yield rig

    return opened
