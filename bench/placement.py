"""Exclusive placement of 20 Jobs of 16 pods on 20 racks, with gated or refused followers.

Etcd, API server, Job controller, scheduler and webhooks are real; the nodes have no kubelets, so
pods stay bound. "Refused" is the behaviour of controllers without gates: the Job controller retries
the creation of a follower, with increasing delays, until its leader has a node. In the second part
nodes are created 20 s after the JobSet, as by a cluster autoscaler, and time counts from then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from collections import Counter
from pathlib import Path

import uvloop

from bench.common import ROOT, create_namespace, in_parallel, say, spread, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy import admission, aio
from jobsetpy.api.core import Pod
from jobsetpy.api.jobset import ChildPod, JobSet
from jobsetpy.app import wiring
from jobsetpy.app.config.settings import Configuration
from jobsetpy.client import Client, HttpRequest, connect
from jobsetpy.manager import Manager
from jobsetpy.testing import eventually
from support.cluster.follow import following
from support.cluster.install import apply_manifest
from support.cluster.manager_process import free_port
from support.cluster.racks import exclusive_jobset, make_rack
from support.cluster.webhooks import apply_webhooks

LIMIT_S = 900.0
KEY = "example.test/rack"


class Requests(Counter):
    """The manager's requests."""

    def on_response(self, verb: str, resource: str, *_: object) -> None:
        """Count one."""
        self[f"{verb} {resource}"] += 1

    def on_throttled(self, seconds: float) -> None:
        """Nothing to count."""


@contextlib.asynccontextmanager
async def manager(client: Client, port: int, *, gates: bool):
    """A manager with webhooks."""
    settings = admission.WebhookSettings(
        bind_address=f"127.0.0.1:{port}",
        extra_dns_names=("127.0.0.1",),
        check_period_s=0.5,
        gate_followers=gates,
    )
    made = Manager(client)
    wiring.add_jobset_controllers(made, Configuration(values={"--webhooks": True}))
    served = admission.setup(made, settings)
    stop = asyncio.Event()
    async with aio.supervise() as tasks:
        running = tasks.start(made.run(stop), name="manager")
        await eventually(lambda: made.ready.is_set() and not list(served.problems()), 30)
        yield
        stop.set()
        await running


async def pod_requests(client: Client) -> Counter[str]:
    """Counters of the API server: requests for pods by verb, and refused creations."""
    answer = await client.raw(HttpRequest(method="GET", path="/metrics"))
    found: Counter[str] = Counter()
    for line in answer.body.decode().splitlines():
        if not line.startswith("apiserver_request_total{") or 'resource="pods"' not in line:
            continue
        labels = dict(
            part.split("=", 1) for part in line[line.index("{") + 1 : line.rindex("}")].split(",")
        )
        verb, code = labels["verb"].strip('"'), labels["code"].strip('"')
        if labels["subresource"].strip('"'):
            continue
        count = int(float(line.rpartition(" ")[2]))
        found[verb] += count
        if verb == "POST" and code != "201":
            found["refused"] += count
    return found


async def one(admin: Client, requests: Requests, namespace: str, options, wait_s: float):
    """Place everything once; return seconds and requests."""
    count = options.jobs * options.pods
    bound: dict[str, float] = {}
    leaders: dict[str, float] = {}
    last: dict[str, float] = {}
    done = asyncio.Event()

    def note(pod: ChildPod, gone: bool) -> None:
        meta = pod.metadata
        if gone or not pod.spec.node_name or meta.uid in bound:
            return
        bound[meta.uid] = time.monotonic()
        if meta.annotations.completion_index == "0":
            leaders[meta.labels.job_key] = bound[meta.uid]
        last[meta.labels.job_key] = bound[meta.uid]
        if len(bound) == count:
            done.set()

    before, mine = await pod_requests(admin), Counter(requests)
    async with following(admin, ChildPod, note, namespace=namespace):
        body = exclusive_jobset("js", key=KEY, pool=namespace, jobs=options.jobs, pods=options.pods)
        if not wait_s:
            await make_racks(admin, namespace, options.jobs)
        start = time.monotonic()
        await admin.create(JobSet, namespace, body)
        if wait_s:
            await asyncio.sleep(wait_s)
            start = time.monotonic()
            await make_racks(admin, namespace, options.jobs)
        async with asyncio.timeout(LIMIT_S):
            await done.wait()
    after = await pod_requests(admin)
    times = sorted(each - start for each in bound.values())
    return {
        "leaders": max(leaders.values()) - start,
        "lag": statistics.median(last[job] - leaders[job] for job in leaders),
        "half": times[len(times) // 2],
        "all": times[-1],
        "posts": after["POST"] - before["POST"],
        "refused": after["refused"] - before["refused"],
        "patches": requests["patch pods"] - mine["patch pods"],
    }


async def make_racks(client: Client, pool: str, count: int) -> None:
    """Create two nodes for each of ``count`` racks simultaneously."""
    await in_parallel(
        count,
        [
            lambda name=f"{pool}-{rack}": make_rack(client, name, key=KEY, nodes=2, pool=pool)
            for rack in range(count)
        ],
    )


async def measure(
    kubeconfig: str, options, wait_s: float, rows: list[tuple[str, str, str]]
) -> None:
    """Run all rounds, alternating with and without gates."""
    admin = await connect(kubeconfig=kubeconfig, qps=0)
    requests = Requests()
    own = await connect(kubeconfig=kubeconfig, qps=0, observer=requests)
    figures: dict[bool, list[dict]] = {True: [], False: []}
    what = f"nodes {wait_s:.0f} s later" if wait_s else "nodes there"
    port = free_port()
    try:
        await create_namespace(admin, "jobset-system")
        await apply_webhooks(admin, port)
        await apply_manifest(admin, ROOT / "config/webhook/secret.yaml")
        for number in range(options.rounds):
            for gates in (True, False):
                namespace = f"b{wait_s:.0f}-{number}-{'held' if gates else 'refused'}"
                await create_namespace(admin, namespace)
                await asyncio.sleep(2)  # the service account
                async with manager(own, port, gates=gates):
                    took = await one(admin, requests, namespace, options, wait_s)
                    figures[gates].append(took)
                    say(f"{what}, {'held' if gates else 'refused'}: {took}")
                    await admin.delete(JobSet, namespace, "js", propagation="Foreground")
                    await eventually(lambda n=namespace: empty(admin, n), 120, poll_s=0.5)
    finally:
        await admin.aclose()
        await own.aclose()
    for gates, name in ((True, "held"), (False, "refused")):
        got = figures[gates]
        for key, label, unit in (
            ("leaders", "all leaders bound", " s"),
            ("lag", "a Job's last pod after its leader", " s"),
            ("half", "half of the pods bound", " s"),
            ("all", "all pods bound", " s"), ("posts", "pod creations sent", ""),
            ("refused", "of them refused", ""), ("patches", "pods patched by the manager", ""),
        ):  # fmt: skip
            aim = "0" if gates and key == "refused" else ""
            digits = 2 if unit else 0
            row = (f"{what}, {name}: {label}", spread([f[key] for f in got], unit, digits), aim)
            rows.append(row)


async def empty(client: Client, namespace: str) -> bool:
    """Return True if no pod is left."""
    return not (await client.list_page(Pod, namespace, limit=1)).items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--pods", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--late", type=float, default=20.0, help="delay of the nodes, in seconds")
    options = parser.parse_args()
    rows: list[tuple[str, str, str]] = []
    crd = Path(ROOT / "config/crd/jobset.x-k8s.io_jobsets.yaml")
    with Cluster(name="bench-placement", crds=[crd]) as cluster:
        for wait_s in (0.0, options.late):
            uvloop.run(measure(str(cluster.kubeconfig), options, wait_s, rows))
    table(
        f"{options.jobs} Jobs of {options.pods} pods on as many racks, {options.rounds} rounds, "
        "min/median/max",
        rows,
    )


if __name__ == "__main__":
    main()
