"""Memory of a manager by its number of cached pods, to set the container's limit.

With a real API server; pods are created without a Job controller. Measured are the memory at rest
and the maximum during a start with all pods, when lists are decoded: the limit must allow for that.
Webhooks are served, as in the default installation.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from bench.common import ROOT, create_namespace, say, table
from hack.cluster import Cluster
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import connect
from support.cluster.bare_pods import make_pods
from support.cluster.manager_process import ManagerProcess, free_port
from support.cluster.objects import in_place_jobset
from support.cluster.webhooks import webhook_flags, write_certificate

PER_JOB = 100


async def measure(steps: list[int], per_jobset: int) -> list[tuple[str, str, str]]:
    """Figures for each number of pods."""
    rows = []
    crd = ROOT / "config" / "crd" / "jobset.x-k8s.io_jobsets.yaml"
    with (
        Cluster(crds=[crd], controller_manager=False, scheduler=False) as cluster,
        tempfile.TemporaryDirectory() as temporary,
    ):
        folder = Path(temporary)
        write_certificate(folder)
        client = await connect(kubeconfig=str(cluster.kubeconfig), qps=0)
        flags = webhook_flags(free_port(), folder)
        manager = ManagerProcess(cluster.kubeconfig, folder / "log", *flags)
        try:
            made = 0
            for number, pods in enumerate(steps):
                for jobset in range(made, pods, per_jobset):
                    namespace = f"m{jobset}"
                    await create_namespace(client, namespace)
                    if manager.process is None:
                        await manager.start()
                    jobs = per_jobset // PER_JOB
                    body = in_place_jobset("gang", jobs=jobs, pods=PER_JOB)
                    await client.create(JobSet, namespace, body)
                    await make_pods(client, namespace, jobs, PER_JOB)
                made = pods
                if manager.process is None:
                    await manager.start()
                await asyncio.sleep(3)
                rest = manager.rss_mb()
                await manager.stop()
                await manager.start()
                await asyncio.sleep(3)
                row = f"{rest:.0f} MB", f"{manager.rss_mb():.0f} MB", f"{manager.peak_mb():.0f} MB"
                say(f"{pods} pods: {', '.join(row)} (step {number + 1} of {len(steps)})")
                rows.append(
                    (f"{pods:,} pods: grown to / after a restart / at most", " / ".join(row), "")
                )
        finally:
            await manager.stop()
            await client.aclose()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[0, 1000, 5000])
    parser.add_argument("--per-jobset", type=int, default=1000)
    options = parser.parse_args()
    rows = asyncio.run(measure(options.pods, options.per_jobset))
    table("Memory of a manager with webhooks", rows)


if __name__ == "__main__":
    main()
