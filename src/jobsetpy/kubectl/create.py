"""``create``: a training with restart in place from a few flags, and its progress until it ends."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any, Final

from jobsetpy.kubectl import logs, output, status
from jobsetpy.kubectl.cluster import JOBSETS, Cluster
from jobsetpy.kubectl.errors import EXIT_ERROR, CommandError
from jobsetpy.submit import training

_NUMBERS: Final = (
    ("--nodes", 1, "number of pods that train"),
    ("--nproc", 0, "number of processes of each pod, with ranks"),
    ("--spares", 0, "number of pods that wait to take over from lost ones"),
    ("--gpus", 0, "number of GPUs of each pod"),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.usage = "%(prog)s NAME --image IMAGE [options] -- PROGRAM [ARGUMENT...]"
    parser.add_argument("name", metavar="NAME", help="name of the new JobSet")
    parser.add_argument("--image", required=True, help="image of the workers")
    for flag, default, text in _NUMBERS:
        number = output.at_least(default)
        parser.add_argument(flag, metavar="N", type=number, default=default, help=text)
    parser.add_argument("--queue", default="", help="queue of Kueue")
    parser.add_argument(
        "--dry-run",
        nargs="?",
        choices=("none", "client", "server"),
        const="client",
        default="none",
        help="client: print the manifest; server: ask the API server, without changing anything",
    )
    parser.add_argument("--wait", action="store_true", help="show its progress until it ends")
    parser.add_argument(
        "--follow", action="store_true", help="likewise, with the logs of all ranks"
    )


def run(options: argparse.Namespace) -> int:
    """Print or create the JobSet; with ``--wait``, return 1 if it fails."""
    if not options.program:
        raise CommandError(
            "error: the program is missing: put it after --, as in -- python train.py"
        )
    _check_arguments(options)
    body = training(
        options.name, options.image, options.program, nodes=options.nodes, nproc=options.nproc,
        spares=options.spares, gpus=options.gpus, queue=options.queue,
    )  # fmt: skip
    _check(body)
    if options.dry_run == "client":
        output.write(body, options.output or "yaml")
        return 0
    from jobsetpy.kubectl.cluster import run as in_cluster
    from jobsetpy.kubectl.main import target_options

    long = options.wait or options.follow
    return in_cluster(
        target_options(options), os.environ, lambda found: _create(found, body, options), long=long
    )


def _check_arguments(options: argparse.Namespace) -> None:
    """Refuse mistakes that errors about the manifest would describe in words of its fields."""
    from jobsetpy.api.name_rules import dns1035_label, label_value

    checks = (
        ("NAME", options.name, dns1035_label(options.name)),
        ("--queue", options.queue, label_value(options.queue)),
    )
    for what, value, problems in checks:
        if problems:
            raise CommandError(f"error: {what} {value!r}: {problems[0]}")
    if not options.image.strip():
        raise CommandError("error: --image is empty: name the image of the workers")
    if options.spares and not options.nproc:
        raise CommandError("error: --spares needs --nproc N, the number of processes of each pod")


def _check(body: dict[str, Any]) -> None:
    """Refuse what no manager would accept, such as a name that is too long for its pods."""
    from jobsetpy.kubectl import manifests
    from jobsetpy.reconcilers.rules.features import Features

    if errors := manifests.judge(body, Features()).errors:
        raise CommandError("\n".join(f"error: {each}" for each in errors))


async def _create(cluster: Cluster, body: dict[str, Any], options: argparse.Namespace) -> int:
    path = f"{JOBSETS}/namespaces/{cluster.namespace}/jobsets"
    dry = (("dryRun", "All"),) if options.dry_run == "server" else ()
    stored = await cluster.send("POST", path, body, query=dry)
    if options.output:
        output.write(stored, options.output)
    else:
        done = "created (server dry run)" if dry else "created"
        print(f"jobset.jobset.x-k8s.io/{options.name} {done}", flush=True)  # noqa: T201
    if dry or not (options.wait or options.follow):
        return 0
    async with asyncio.TaskGroup() as group:
        if options.follow:
            group.create_task(logs.follow(cluster, options.name, None))
        ended = group.create_task(_ended(cluster, options.name))
    return ended.result()


async def _ended(cluster: Cluster, name: str) -> int:
    """Show each change of state until the JobSet has ended; return 1 if it has failed."""
    found, problem, shown = await status.look(cluster, name), "", ""
    while True:
        text = problem or _progress(found)
        if text != shown:
            print(output.clean(text), file=sys.stderr, flush=True)  # noqa: T201
            shown = text
        if found["state"] in {"Completed", "Failed"}:
            return EXIT_ERROR if found["state"] == "Failed" else 0
        found, problem = await status.later(cluster, name, found)


def _progress(found: dict[str, Any]) -> str:
    counts = found["restarts"]
    restarts = counts["inPlace"] + counts["all"] + counts["single"]
    text = f"{found['name']} is {found['state'].lower()}, {restarts} restarts"
    # Ages change each second, and a reason is no progress: only what it waits for is shown.
    return f"{text}: {found['why'][0]}" if found["why"] and found["state"] != "Running" else text
