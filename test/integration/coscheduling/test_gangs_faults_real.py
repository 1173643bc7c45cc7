"""Gangs while coscheduler, scheduler or API server are killed: no gang in part, no gang lost."""

import asyncio
import sys

import pytest

from support.cluster.manager_process import free_port
from support.coscheduling.coscheduler_process import CoschedulerProcess
from support.coscheduling.gangs import create_all, pod_body
from support.coscheduling.gangs_kit import LIMIT_S, Front
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(180)]

ELECTION = """\
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection:
  leaderElect: true
  resourceNamespace: jobset-system
  leaseDuration: 3s
  renewDeadline: 2s
  retryPeriod: 500ms
"""


async def test_held_binds_are_requested_again_when_a_process_is_killed(gangs):
    """No pod is bound before the gang is complete."""
    async with gangs() as rig:
        await rig.node("n", 8)
        await rig.waiting_group("a", 8)

        await rig.process.kill()
        await asyncio.sleep(0.5)
        assert rig.binds.counts("a") == [0]
        await rig.process.start()
        await rig.holds(7)

        await asyncio.to_thread(rig.cluster.kill_component, "kube-scheduler")
        await rig.holds(0)  # requests end with their connections
        rig.cluster.start_component("kube-scheduler")
        await rig.holds(7)

        await asyncio.to_thread(rig.cluster.restart_apiserver, kill=True)
        await rig.holds(7)
        assert rig.binds.counts("a") == [0]
        await rig.let_go("a")
        await rig.bound("a")


async def test_gang_is_completed_when_a_process_is_killed_between_its_binds(gangs):
    """The remaining pods are bound once the killed process runs again."""
    async with gangs() as rig:
        await rig.node("n", 60)
        for group, kill in (("a", "coscheduler"), ("b", "kube-scheduler"), ("c", "kube-apiserver")):
            await rig.create(rig.bodies(group, 20))
            await rig.binds.wait(lambda group=group: rig.binds.counts(group)[0] > 0, LIMIT_S)
            if kill == "coscheduler":
                await rig.process.kill()
                await rig.process.start()
            elif kill == "kube-scheduler":
                await asyncio.to_thread(rig.cluster.kill_component, kill)
                rig.cluster.start_component(kill)
            else:
                await asyncio.to_thread(rig.cluster.restart_apiserver, kill=True)
            await rig.bound(group)
        assert rig.in_part() == set()


async def test_standby_replica_takes_over_held_binds(gangs, tmp_path):
    """It is ready only when it leads; the scheduler is directed to it and requests the binds again."""
    config = tmp_path / "config.yaml"
    config.write_text(ELECTION)
    async with gangs(start=False) as rig, Front(rig.site.port).serving() as front:
        replicas = []
        for number in range(2):
            port = free_port()
            flags = ("--config", str(config), "--bind-address", f"127.0.0.1:{port}")
            log = tmp_path / f"replica-{number}.log"
            replica = CoschedulerProcess(
                rig.cluster.kubeconfig, log, rig.site, *flags, metrics=True
            )
            replicas.append((port, replica))
            await replica.start(wait=number == 0)
        try:
            (front.target, rig.process), (port, standby) = replicas
            await rig.node("n", 6)
            await rig.waiting_group("a", 6)
            assert not standby.ready()
            await rig.process.kill()
            rig.process, front.target = standby, port
            await standby.wait_ready()
            await rig.holds(5)
            assert rig.binds.counts("a") == [0]
            await rig.let_go("a")
            await rig.bound("a")
        finally:
            for _, replica in replicas:
                await replica.stop()


async def test_gang_waits_when_it_has_more_binds_than_files_may_be_open(gangs):
    """Its binds are refused; regular pods are bound, and no error occurs."""
    limited = [sys.executable, "-c", "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (264, 264)); os.execvp(sys.argv[1], sys.argv[1:])"]  # fmt: skip
    async with gangs("--permit-timeout=1s", prefix=limited) as rig:
        await rig.node("n", 80)
        most = rig.metric("jobset_coscheduler_held_binds_limit")
        assert 10 <= most <= 60
        await rig.create(rig.bodies("large", 64))
        refused = 'jobset_coscheduler_quick_rejects_total{reason="other"}'
        await eventually(lambda: rig.metric(refused) >= 1, LIMIT_S, poll_s=0.1)
        await create_all(rig.client, [pod_body("regular-0", group="regular")])
        await rig.binds.wait(lambda: rig.binds.counts("regular") == [1], LIMIT_S)
        assert rig.binds.counts("large") == [0]
        assert rig.process.ready()
        await rig.process.stop()
        rig.process._prefix = ()
        # All 64 have to arrive within the timeout, and each arrives when its back-off is over.
        rig.process.arguments = [
            each for each in rig.process.arguments if not each.startswith("--permit-timeout")
        ]
        await rig.process.start()
        await rig.bound("large")
