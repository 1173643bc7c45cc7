"""The wall clock of a leader jumps by hours, back and forth: real API server, a manager process.

Only the manager's clock jumps; those of the API server and of the other replica do not. Everything
that uses the monotonic clock (election, back-off, waits) is unaffected. ``ttlSecondsAfterFinished``
counts from a stored time, which is compared with the wall clock once.
"""

import asyncio
import contextlib
import subprocess
from pathlib import Path

import pytest

from hack.cluster._requirements import require_programs
from jobsetpy.api.coordination import Lease
from jobsetpy.errors import NotFoundError
from support import patience
from support.cluster.deployed import LEASE
from support.cluster.manager_process import ManagerProcess, configured, stopping
from support.faults.fault_kit import attempt_of, quiet
from support.patience import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(300)]

SOURCE = Path(__file__).resolve().parents[2] / "support" / "faults" / "wall_clock.c"
HOURS = 3600


class WallClock:
    """The wall clock of processes that are started with ``environ``."""

    def __init__(self, folder: Path) -> None:
        require_programs({"gcc": "gcc libc6-dev"})
        library = folder / "wall_clock.so"
        command = ["gcc", "-shared", "-fPIC", "-O", "-Wall", "-o", library, SOURCE]
        subprocess.run(command, check=True, timeout=patience.scaled(60))
        self._file = folder / "offset"
        self.jump(0)
        self.environ = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Set the clock this number of seconds ahead (or behind)."""
        content = seconds.to_bytes(8, "little", signed=True)
        if not self._file.exists():
            self._file.write_bytes(content)
            return
        with self._file.open("r+b") as file:
            file.write(content)


async def test_leader_is_unaffected_when_its_clock_jumps(cluster, client, namespace, tmp_path):
    """Restarts are counted once, the leader stays, reconciles do not loop, TTLs are kept."""
    clock = WallClock(tmp_path)
    # A busy leader must not lose its Lease; a jump by hours would end this one, too.
    times = {"leaseDuration": "60s", "renewDeadline": "50s", "retryPeriod": "2s"}
    election = {"resourceNamespace": namespace, **times}
    flags = configured(tmp_path / "configuration.yaml", leaderElection=election)
    leader = ManagerProcess(
        cluster.kubeconfig, tmp_path / "log", *flags, metrics=True, environ=clock.environ
    )
    standby = ManagerProcess(cluster.kubeconfig, tmp_path / "standby", *flags)

    async def lease():
        spec = (await client.get(Lease, namespace, LEASE)).spec
        return spec.holder_identity, spec.lease_transitions

    async def held():
        with contextlib.suppress(NotFoundError):
            return await lease()
        return None

    async def reconciles() -> float:
        series = await asyncio.to_thread(leader.scrape)
        return sum(
            value
            for name, value in series.items()
            if name.startswith("controller_runtime_reconcile_total{")
        )

    async with stopping(leader, standby):
        await leader.start()
        first = await eventually(held, 60, poll_s=0.1)
        await standby.start()
        async with attempt_of(client, namespace) as group:
            await group.create("recreate", "in-place")
            for number, hours in enumerate((6, -6), 1):
                clock.jump(hours * HOURS)
                for name in ("recreate", "in-place"):
                    await group.fail(name)
                await group.running("recreate", restarts=number)
                await group.running("in-place", epoch=number + 1)
                assert group.restarts("recreate") == number
                assert group.epochs("in-place") == (number + 1, number)
                assert await lease() == first
                assert (await asyncio.to_thread(leader.readiness))[0] == 200
            clock.jump(0)
            renewed = (await client.get(Lease, namespace, LEASE)).spec.renew_time

            async def renewed_again() -> bool:
                return (await client.get(Lease, namespace, LEASE)).spec.renew_time != renewed

            await eventually(renewed_again, 60, poll_s=0.2)
            await quiet(reconciles, most=5)

            # Finished, with an hour to live: it stays three hours later by this clock.
            path = f"{group.jobsets}/recreate"
            await group.send("PATCH", path, {"spec": {"ttlSecondsAfterFinished": HOURS}})
            for pod in group.world.pods_of("recreate"):
                await group.world.finish(pod)
            await group.world.until(
                lambda: group.world.jobsets["recreate"].status.terminal_state, 60, "its end"
            )
            # A time is pinned when the manager first sees it, which takes a moment on a busy machine.
            await quiet(reconciles, most=5)
            clock.jump(3 * HOURS)
            await group.send("PATCH", path, {"metadata": {"labels": {"changed": "yes"}}})
            await quiet(reconciles, most=5)
            assert group.world.left_of("recreate") != []
            # Three hours before its end by this clock, it is deleted after its remaining seconds.
            clock.jump(-3 * HOURS)
            await group.send("PATCH", path, {"spec": {"ttlSecondsAfterFinished": 5}})
            await group.world.until(
                lambda: not group.world.left_of("recreate"), 60, "its deletion after its TTL"
            )
            assert group.world.violations == []
            assert standby.process.returncode is None
