"""Record, on a real cluster, the data for the documentation of ``kubectl jobset``.

    record_plugin.py            write hack/docs/recorded, docs/images and docs/how-to/kubectl.md
    record_plugin.py NAME...    only some: commands, sidecar, supervised

Sixteen real pods restart in place three times, with the agent as sidecar and as the worker's
parent; the other commands run for four pods, and for some that find no node. The parts of the API
server's answers that commands read are kept; ``hack/generate/update_plugin_page.py`` uses them with
the plugin to make texts and pictures. On an idle machine, durations are those of
``bench/README.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import io
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
import uvloop

from hack.cluster import Cluster
from hack.generate import update_plugin_page as page
from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.client import Client, HttpRequest, HttpResponse
from jobsetpy.kubectl import cluster
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.kubeconfig import Options, Target
from support import patience
from support.restarts.scenario import (
    NAMESPACE,
    build_images,
    gang_jobset,
    kill_worker,
    managed,
    pod_log_folders,
    restart_once,
    restart_supervised_once,
    run_gang,
    supervised_jobset,
)
from support.restarts.timeline import Timeline

PODS: Final = 16
KILLS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL)
"""Signals that end workers: as when memory runs out, and on a request. A container's first process
ignores other signals that it does not handle."""
ALL: Final = ("commands", "sidecar", "supervised")
STEPS: Final = (
    "trap 'exit 143' TERM; step=0; while :; do step=$((step + 1)); "
    "echo $step >$JOBSET_PROGRESS_FILE; sleep 0.4 & wait $!; done"
)
RUN_S: Final = 3.0
"""Seconds that workers run between restarts, since writes of counters are delayed after one."""

Json = dict[str, Any]


class Recording:
    """A transport that records answers.

    Args:
        inner: transport to the server.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.answers: Json = {}

    async def request(self, request: HttpRequest) -> HttpResponse:
        """Send a request and record the answer."""
        answer = await self._inner.request(request)
        try:
            body = slim(msgspec.json.decode(answer.body))
        except msgspec.DecodeError:  # such as "404 page not found"
            body = answer.body.decode()
        self.answers[page.asked(request)] = {"status": answer.status, "body": body}
        return answer

    async def aclose(self) -> None:
        """Close connections."""
        await self._inner.aclose()


def slim(found: Json) -> Json:
    """Remove the parts of an answer that commands do not read, or that change without a reason."""
    for each in (found, *(found.get("items") or ())):
        meta = each.get("metadata", {})
        meta.pop("managedFields", None)
        (meta.get("annotations") or {}).pop("kubectl.kubernetes.io/last-applied-configuration", "")
        spec = each.get("spec", {})
        spec.pop("template", None)
        for item in spec.get("replicatedJobs") or ():
            item.pop("template", None)
        if "containers" in spec:
            kept = ("nodeName", "schedulingGates")
            each["spec"] = {key: spec[key] for key in kept if key in spec}
        if "nodeInfo" in each.get("status", {}):
            node = each["status"]
            each["status"] = {key: node[key] for key in ("conditions", "nodeInfo")}
        for version in spec.get("versions") or ():
            parts = version["schema"]["openAPIV3Schema"]["properties"]
            names = {
                part: {"properties": {key: {} for key in parts[part]["properties"]}}
                for part in ("spec", "status")
            }
            version["schema"] = {"openAPIV3Schema": {"properties": names}}
        for hook in each.get("webhooks") or ():
            if hook["clientConfig"].get("caBundle"):
                hook["clientConfig"]["caBundle"] = "AA=="
        if each.get("kind") == "ValidatingAdmissionPolicy":
            each["spec"] = {}
    return found


def ask(kubeconfig: Path, command: str) -> Json:
    """Run a command of the plugin; return the recorded answers and their time."""
    made: list[Recording] = []
    real = cluster.target

    async def target(options: Options, environ: Mapping[str, str], *, long: bool) -> Target:
        found = await real(options, environ, long=long)
        made.append(Recording(found.transport))
        return found._replace(transport=made[-1])

    now = datetime.now(UTC).isoformat(timespec="seconds")
    with (
        mock.patch.object(cluster, "target", target),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(out),
        contextlib.chdir(page.RECORDED),
    ):
        plugin.main(["--kubeconfig", str(kubeconfig), *command.split()])
    print(f"$ {command}\n{out.getvalue()}", file=sys.stderr)
    return {"now": now, "answers": made[-1].answers}


async def settled(client: Client, name: str) -> None:
    """Wait until the last restart of a JobSet is complete.

    The time until its barrier was lifted is only known if counters were written since.
    """
    async with patience.timeout(30):
        while True:
            status = (await client.get(JobSet, NAMESPACE, name)).status
            if status.restart_history[-1].outcome and status.state == "Running":
                return
            await asyncio.sleep(0.3)


async def sixteen(
    client: Client,
    kubeconfig: Path,
    jobset: Json,
    logs: list[Path],
    restart: Callable[[Timeline, signal.Signals], Awaitable[object]],
) -> Json:
    """Return recorded answers about a JobSet's pods after some restarts."""
    async with run_gang(client, jobset, PODS, logs) as timeline:
        for number in KILLS:
            await asyncio.sleep(RUN_S)
            await restart(timeline, number)
        await asyncio.sleep(RUN_S)
        name = jobset["metadata"]["name"]
        await settled(client, name)
        return {"running": await asyncio.to_thread(ask, kubeconfig, f"restarts {name}")}


async def commands(client: Client, kubeconfig: Path, logs: list[Path]) -> Json:
    """Return recorded answers for each of the other commands, in a sensible order."""
    out: Json = {}

    async def keep(*names: str) -> None:
        for name in names:
            out[name] = await asyncio.to_thread(ask, kubeconfig, page.COMMANDS[name])

    async def in_state(name: str, state: str) -> None:
        async def reached() -> bool:
            return (await client.get(JobSet, NAMESPACE, name)).status.state == state

        await patience.eventually(reached, 120, poll_s=0.3)

    async def begun() -> bool:
        return bool((await client.get(JobSet, NAMESPACE, "training")).status.restart_history)

    async def paced() -> bool:
        await keep("list")
        return keys.PACE_ANNOTATION in json.dumps(out["list"])

    late = supervised_jobset("late", 2)
    late["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {
        "accelerator": "none-has-it"
    }
    training = supervised_jobset("training", 4, command=("sh", "-c", STEPS))
    async with run_gang(client, training, 4, logs):
        await client.create(JobSet, NAMESPACE, late)
        await in_state("training", "Running")
        await keep("restart")
        await patience.eventually(begun, 60, poll_s=0.1)
        await settled(client, "training")
        await patience.eventually(paced, 300, poll_s=5)
        await keep("status", "doctor", "lint-server", "waiting", "suspend")
        await in_state("training", "Suspended")
        await keep("resume")
        await client.delete(JobSet, NAMESPACE, "late", propagation="Foreground")
    return out


async def _sidecar(timeline: Timeline, number: signal.Signals) -> object:
    return await restart_once(timeline, PODS, functools.partial(kill_worker, number=number))


async def _supervised(timeline: Timeline, number: signal.Signals) -> object:
    return await restart_supervised_once(timeline, PODS, "worker started", number=number)


async def record(made: Cluster, wanted: Collection[str]) -> None:
    """Parse the names of what to record."""
    kubeconfig = Path(made.kubeconfig)
    logs = pod_log_folders(made)
    async with managed(kubeconfig) as client:
        if "commands" in wanted:
            save("commands", await commands(client, kubeconfig, logs))
        if "sidecar" in wanted:
            jobset = gang_jobset("sidecar", PODS)
            save("sidecar", await sixteen(client, kubeconfig, jobset, logs, _sidecar))
        if "supervised" in wanted:
            jobset = supervised_jobset("supervised", PODS)
            save("supervised", await sixteen(client, kubeconfig, jobset, logs, _supervised))


def save(name: str, moments: Json) -> None:
    """Write the answers in a format with readable differences."""
    text = json.dumps(moments, indent=1)
    (page.RECORDED / f"{name}.json").write_text(text + "\n")
    print(f"recorded {name}")


def main(argv: list[str]) -> int:
    """Record, then generate the pages from it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ALL))
    wanted = parser.parse_args(argv).names or ALL
    sys.stdout.reconfigure(line_buffering=True)
    print("building the images")
    images = build_images()
    print("starting a cluster")
    with Cluster(nodes=1, images=images) as made:
        uvloop.run(record(made, wanted))
    return page.main([])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
