"""``explain``: the settings that apply to a JobSet, their sources, and what failures lead to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jobsetpy.api import keys
from jobsetpy.api.annotations import PREFIX, SETTINGS, Level
from jobsetpy.kubectl import cluster, manifests, output
from jobsetpy.kubectl.errors import EXIT_ERROR, CommandError
from jobsetpy.kubectl.outcomes import Outcome, outcomes
from jobsetpy.reconcilers.restart_in_place.injection.effective import (
    CLUSTER,
    ENFORCED,
    FAST,
    NAMESPACE,
    WORD,
    idles,
    sources_of,
)
from jobsetpy.reconcilers.rules.annotations import holders
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import Json, child, text

PAGES = "docs/"
_SOURCES = {
    FAST: f"word: {FAST}",
    NAMESPACE: "namespace",
    CLUSTER: "cluster: inPlaceRestart.defaults",
    ENFORCED: "cluster: inPlaceRestart.defaults.enforced",
}


class Effective(NamedTuple):
    """A setting of a JobSet.

    Args:
        name: name of the annotation, without its usual prefix.
        value: value that applies.
        source: object, word or configuration that states it.
        page: page of the documentation.
    """

    name: str
    value: str
    source: str
    page: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", metavar="NAME|FILE", help="JobSet, or a manifest; - for the input")
    parser.add_argument(
        "--server",
        action="store_true",
        dest="ask",
        help="apply a manifest in a dry run, with the defaults of its namespace and cluster",
    )


def run(options: argparse.Namespace) -> int:
    """Print the settings; return 1 if a manifest is refused."""
    path = Path(options.what)
    if options.what == "-" or path.exists() or path.suffix in manifests.SUFFIXES:
        found = _from_manifests(options)
    else:
        found = [(_from_cluster(options, lambda server: server.jobset(options.what)), [])]
    code = EXIT_ERROR if any(errors for _, errors in found) else 0
    if options.output:
        rows = [[each._asdict() for each in settings(jobset)] for jobset, _ in found]
        output.write(rows if len(rows) > 1 else rows[0], options.output)
        return code
    for jobset, errors in found:
        print(f"jobset/{text(child(jobset, 'metadata'), 'name')}")  # noqa: T201
        effective = output.table(Effective._fields, list(settings(jobset)), most=132)
        failures = output.table(Outcome._fields, list(outcomes(jobset)), most=132)
        print("\n".join((*effective, "", *failures)))  # noqa: T201
        for error in errors:
            print(f"error: {error}")  # noqa: T201
    return code


def settings(jobset: Json) -> Iterator[Effective]:
    """Yield the settings that apply to an admitted JobSet, and defaults of those that could."""
    policy = child(jobset, "spec", "failurePolicy")
    strategy = (
        f"{text(policy, 'restartStrategy') or 'none'}, maxRestarts {policy.get('maxRestarts', 0)}"
    )
    notes = child(jobset, "metadata", "annotations")
    # Admission completes the policy for the word, and keeps no record of what was stated.
    by = f"JobSet, or {_SOURCES[FAST]}" if notes.get(WORD) == FAST else "JobSet"
    yield Effective("spec.failurePolicy", strategy, by, f"{PAGES}how-to/failure-policy.md")
    stated, every = sources_of(notes), list(holders(jobset))
    for name, row in SETTINGS.items():
        if name == keys.SETTINGS_FROM_ANNOTATION:
            continue
        short, page = name.removeprefix(PREFIX), f"{PAGES}{row.page}"
        without = {holder.job for holder in every if holder.job}
        for holder in every:
            if name not in holder.notes or holder.level not in row.levels:
                continue
            source = "JobSet" if not holder.job else f"{holder.level.value} of {holder.job}"
            if holder.level is Level.JOBSET and name in stated:
                source = _SOURCES[stated[name]]
            without = without - {holder.job} if holder.job else set()
            yield Effective(short, str(holder.notes[name]), source, page)
        if without and row.default and not idles(name, notes, child(jobset, "spec")):
            yield Effective(short, row.default, "default", page)


def _from_manifests(options: argparse.Namespace) -> list[tuple[Json, list[str]]]:
    """Return each JobSet as admission would store it, and the errors."""
    found = []
    for document in manifests.read([options.what]):
        if document.data is None:
            raise CommandError(f"error: {document.place}: {document.problem}")
        if document.is_jobset:
            found.append(_admitted(document.data, options))
    if not found:
        raise CommandError("error: no JobSet in what was given")
    return found


def _admitted(data: dict[str, Any], options: argparse.Namespace) -> tuple[Json, list[str]]:
    """Return a manifest's JobSet as admission would store it, and the errors."""
    if not options.ask:
        verdict = manifests.judge(data, Features())
        return verdict.jobset, verdict.errors
    own = text(child(data, "metadata"), "namespace")
    return _from_cluster(options, lambda to: to.dry_run(data, own or to.namespace)), []


def _from_cluster(options: argparse.Namespace, ask: Any) -> Json:
    from jobsetpy.kubectl.main import import_msgspec, target_options

    import_msgspec()
    found: Json = cluster.run(target_options(options), os.environ, ask)
    return found
