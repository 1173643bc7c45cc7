"""``lint``: what API server and webhooks would say of manifests, without a cluster.

With ``--log`` the patterns and rules of the manifests are tried on a log as well.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from jobsetpy.errors import ApiError
from jobsetpy.kubectl import manifests, output
from jobsetpy.kubectl.errors import EXIT_ERROR, CommandError
from jobsetpy.reconcilers.rules.features import Features, parse_gates
from jobsetpy.reconcilers.rules.json_tree import child, text


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("files", metavar="FILE", nargs="*", help="manifests; - for the input")
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="a worker's log, on which progress-pattern and log-rules are tried; without a "
        'manifest, the pattern "auto"',
    )
    parser.add_argument(
        "--server", action="store_true", dest="ask", help="ask the API server by a dry run as well"
    )
    parser.add_argument(
        "--feature-gates", metavar="A=true,...", default="", help="those of the manager"
    )


def run(options: argparse.Namespace) -> int:
    """Judge each JobSet; 1 if one is refused or cannot be read."""
    features = _features(options.feature_gates)
    if not options.files:
        if not options.log:
            raise CommandError("error: no manifest, and no --log, was given")
        print("\n".join(_tried(options.log, {})))  # noqa: T201
        return 0
    found: list[dict[str, Any]] = []
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for document in manifests.read(options.files):
        if document.data is None:
            found.append(_entry(document.place, "", [document.problem], []))
        elif document.is_jobset:
            verdict = manifests.judge(document.data, features)
            meta = child(document.data, "metadata")
            name = text(meta, "name") or text(meta, "generateName")
            found.append(_entry(document.place, name, verdict.errors, verdict.warnings))
            if options.log and not verdict.errors:
                found[-1]["log"] = _tried(options.log, verdict.jobset)
            asked.append((found[-1], document.data))
    if not found:
        raise CommandError("error: no JobSet in what was given")
    if options.ask:
        _ask(options, asked)
    refused = any(each["errors"] for each in found)
    if options.output:
        output.write(found, options.output)
    else:
        _print(found)
    return EXIT_ERROR if refused else 0


def _entry(place: str, name: str, errors: list[str], warned: list[str]) -> dict[str, Any]:
    return {"file": place, "name": name, "errors": errors, "warnings": warned}


def _print(found: list[dict[str, Any]]) -> None:
    for each in found:
        what = f"{each['file']}: " + (f"jobset/{each['name']}: " if each["name"] else "")
        for kind in ("error", "warning"):
            for warned in each[f"{kind}s"]:
                print(f"{what}{kind}: {warned}")  # noqa: T201
        if not each["errors"] and not each["warnings"]:
            print(f"{what}ok")  # noqa: T201
        for said in each.get("log", ()):
            print(f"{what}log: {said}")  # noqa: T201


def _tried(log: str, jobset: dict[str, Any]) -> list[str]:
    from jobsetpy.kubectl import log_trial

    try:
        return log_trial.try_jobset(jobset, log)
    except OSError as error:
        raise CommandError(f"error: {log}: {error.strerror}") from None


def _features(text: str) -> Features:
    try:
        return Features.from_gates(parse_gates(text))
    except ValueError as error:
        raise CommandError(f"error: --feature-gates: {error}") from None


def _ask(options: argparse.Namespace, asked: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    from jobsetpy.kubectl import cluster
    from jobsetpy.kubectl.main import target_options

    async def ask(server: cluster.Cluster) -> None:
        for entry, data in asked:
            namespace = text(child(data, "metadata"), "namespace") or server.namespace
            try:
                await server.dry_run(data, namespace)
            except ApiError as error:
                entry["errors"].append(f"the API server: {error.message}")

    cluster.run(target_options(options), os.environ, ask)
