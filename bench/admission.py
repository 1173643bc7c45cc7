"""Latency of creating JobSets at 50 requests per second, with and without the webhooks.

With a real API server, the difference of the two is the cost of the webhooks (two calls each over
TLS, and decoding and encoding in the API server). Direct requests to the webhook server measure the
manager's part. Requests are sent at fixed times, even if answers are missing (open loop), and
latency counts from the time at which a request was due, so that a stall is not hidden.

``managedBy`` of the JobSets names another controller, so that the manager creates nothing for them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import msgspec
import uvloop

from bench.bare_loop import BareLoop
from bench.common import create_namespace, install_crd, manager_process, say, table
from hack.cluster import Cluster  # type: ignore[import-not-found]
from jobsetpy.admission._handlers import MUTATE_JOBSET, VALIDATE_JOBSET
from jobsetpy.client import connect
from support.cluster import objects
from support.cluster.manager_process import cpu_seconds, free_port
from support.cluster.webhooks import apply_webhooks, bundle_of, webhook_flags, write_certificate

JOBSETS_PATH = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
WARM_UP_S = 2.0


def jobset(name: str) -> dict:
    """A JobSet of the common kind: four ReplicatedJobs, some rules, a coordinator."""

    def part(part_name: str, **more) -> dict:
        container = {
            "name": "worker",
            "image": "bench.invalid/worker:1",
            "command": ["python", "-m", "train", "--steps=100000"],
            "env": [{"name": f"SETTING_{n}", "value": f"value-{n}"} for n in range(10)],
            "resources": {"requests": {"cpu": "4", "memory": "16Gi"}},
        }
        pod = {"containers": [container], "nodeSelector": {"pool": part_name}}
        return {**objects.replicated_job(pod, 16, name=part_name, replicas=4), **more}

    def rule(rule_name: str, action: str, **more) -> dict:
        return {"name": rule_name, "action": action, **more}

    rules = [
        rule("a", "FailJobSet", onJobFailureReasons=["PodFailurePolicy"]),
        rule("b", "RestartJob", targetReplicatedJobs=["worker"]),
        rule("c", "RestartJobSet", onJobFailureMessagePatterns=["exit 1[0-9]"]),
    ]
    return objects.jobset(
        name,
        part("driver"),
        part("parameters", dependsOn=[{"name": "driver", "status": "Ready"}]),
        part("worker", dependsOn=[{"name": "parameters", "status": "Ready"}]),
        part("evaluator", dependsOn=[{"name": "worker", "status": "Ready"}]),
        labels={"queue": "bench"},
        managedBy="bench.invalid/none",
        coordinator={"replicatedJob": "driver"},
        failurePolicy={"maxRestarts": 3, "rules": rules},
    )


async def open_loop(
    send: Callable[[int], Awaitable[object]], *, rate: float, seconds: float
) -> list[float]:
    """Latencies in seconds of requests sent at fixed times, without those of the warm-up."""
    latencies: list[float] = []
    begin = time.monotonic() + 0.1

    async def one(number: int) -> None:
        due = begin + number / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await send(number)
        if due - begin >= WARM_UP_S:
            latencies.append(time.monotonic() - due)

    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * (seconds + WARM_UP_S))):
            group.create_task(one(number))
    return latencies


def percentiles(latencies: list[float]) -> str:
    ordered = sorted(latencies)
    chosen = [ordered[min(len(ordered) - 1, int(len(ordered) * p))] for p in (0.5, 0.99)]
    return " / ".join(f"{value * 1000:.1f}" for value in (*chosen, ordered[-1])) + " ms"


def review(obj: dict) -> bytes:
    """Review that the API server sends for a creation."""
    request = {
        "uid": "7f0a3c54-6d0c-4cf5-9cf0-1f0d2f1c3a11",
        "kind": {"group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet"},
        "resource": {"group": "jobset.x-k8s.io", "version": "v1alpha2", "resource": "jobsets"},
        "namespace": "bench", "name": obj["metadata"]["name"], "operation": "CREATE",
        "userInfo": {"username": "bench"}, "object": obj, "oldObject": None, "dryRun": False,
    }  # fmt: skip
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )


async def direct(port: int, authority: bytes, stored: dict, *, rate: float, seconds: float):
    """Latencies of the two JobSet webhooks, called without an API server."""
    context = ssl.create_default_context(cadata=authority.decode())
    out = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        for path, obj in ((MUTATE_JOBSET, jobset("js")), (VALIDATE_JOBSET, stored)):
            url, body = f"https://127.0.0.1:{port}{path}?timeout=10s", review(obj)

            async def send(_: int, url: str = url, body: bytes = body) -> None:
                async with session.post(url, data=body) as answer:
                    content = await answer.read()
                    if answer.status != 200 or b'"allowed":true' not in content:
                        raise RuntimeError(f"{answer.status} {content[:500]!r}")

            out.append(await open_loop(send, rate=rate, seconds=seconds))
    return out


async def measure(cluster: Cluster, folder: Path, *, rate: float, seconds: float) -> None:
    kubeconfig = str(cluster.kubeconfig)
    api_server = cluster.component_pid("kube-apiserver")
    sent = rate * (seconds + WARM_UP_S)
    client = await connect(kubeconfig=kubeconfig, qps=0)
    bare = BareLoop(kubeconfig, in_flight=0)
    port = free_port()
    authority, _ = write_certificate(folder)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(client.aclose)
        stack.push_async_callback(bare.close)
        await install_crd(client)

        async def through_the_server(namespace: str) -> list[float]:
            await create_namespace(client, namespace)
            path = JOBSETS_PATH.format(namespace)
            bodies = [
                msgspec.json.encode(jobset(f"js-{number}"))
                for number in range(int(rate * (seconds + WARM_UP_S)))
            ]
            return await open_loop(
                lambda number: bare.send("POST", path, bodies[number]), rate=rate, seconds=seconds
            )

        manager = await stack.enter_async_context(
            manager_process(kubeconfig, folder / "manager.log", *webhook_flags(port, folder))
        )
        say(f"{rate:.0f} creations a second for {seconds:.0f} s, without webhooks")
        before = cpu_seconds(api_server)
        without = await through_the_server("without")
        server_without = (cpu_seconds(api_server) - before) / sent
        await apply_webhooks(client, port, bundle_of(authority))
        await create_namespace(client, "probe")
        stored = await _first_defaulted(bare, jobset("probe"))
        say("the same with webhooks")
        manager.mark()
        before = cpu_seconds(api_server)
        with_webhooks = await through_the_server("with")
        cpu = manager.cpu() / sent
        server_with = (cpu_seconds(api_server) - before) / sent
        say("the webhook server alone")
        mutate, validate = await direct(
            port, authority.certificate, stored, rate=rate, seconds=seconds
        )
        table(
            f"Creating JobSets, {rate:.0f} a second, {len(without)} requests, p50 / p99 / max",
            [
                ("API server without webhooks", percentiles(without), ""),
                ("API server with webhooks", percentiles(with_webhooks), ""),
                ("webhook server alone: defaults", percentiles(mutate), ""),
                ("webhook server alone: validation", percentiles(validate), ""),
                ("manager CPU per creation (both calls)", f"{cpu * 1000:.2f} ms", ""),
                (
                    "API server CPU per creation: without / with",
                    f"{server_without * 1000:.1f} / {server_with * 1000:.1f} ms",
                    "",
                ),
                ("size of the request", f"{len(review(stored)) / 1000:.1f} kB", ""),
                ("peak memory of the manager", f"{manager.peak_mb():.0f} MB", ""),
            ],
        )


async def _first_defaulted(bare: BareLoop, body: dict) -> dict:
    """Create JobSets until the API server calls the webhooks, which it notices with a delay."""
    path = JOBSETS_PATH.format("probe")
    async with asyncio.timeout(30):
        for number in range(1000):
            body["metadata"]["name"] = f"js-{number}"
            content = await bare.send("POST", path, msgspec.json.encode(body))
            stored = msgspec.json.decode(content)
            if "successPolicy" in stored["spec"]:
                return stored
            await asyncio.sleep(0.05)
    raise RuntimeError("the webhooks are not called")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=50.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=25.0)
    options = parser.parse_args()
    with (
        TemporaryDirectory(prefix="jobsetpy-bench-") as folder,
        Cluster(name="bench-admission", controller_manager=False, scheduler=False) as cluster,
    ):
        uvloop.run(measure(cluster, Path(folder), rate=options.rate, seconds=options.seconds))


if __name__ == "__main__":
    main()
