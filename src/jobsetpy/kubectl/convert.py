"""``convert``: manifests in which the supervisor replaces torchrun and other launchers."""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from jobsetpy.api import keys
from jobsetpy.kubectl import manifests
from jobsetpy.kubectl.errors import EXIT_ERROR, CommandError
from jobsetpy.reconcilers.restart_in_place.injection.worker_variables import OWN_NAMES
from jobsetpy.reconcilers.restart_in_place.launchers.launchers import Translation
from jobsetpy.reconcilers.restart_in_place.validation.launchers import translation_of
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.json_tree import child, objects, text

MAX_RESTARTS = 10
"""Limit of restarts in a JobSet that has none, and whose launcher has none."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="manifests; - for the input")


def run(options: argparse.Namespace) -> int:
    """Print the documents, and notes on standard error; return 1 if a launcher is left."""
    documents, notes, left, converted = [], [], False, 0
    for document in manifests.read(options.files):
        if document.data is None:
            raise CommandError(f"error: {document.place}: {document.problem}")
        data = document.data
        if document.is_jobset:
            name = text(child(data, "metadata"), "name")
            place = f"{document.place}: jobset/{name}" if name else document.place
            data, found = convert(data)
            converted += len(found)
            for path, translation in found:
                left = left or not translation.command
                notes += [f"{place}: {note}" for note in _notes(path, translation)]
            if found:
                verdict = manifests.judge(data, Features())
                notes += [f"{place}: error: {each}" for each in verdict.errors]
                left = left or bool(verdict.errors)
        documents.append(data)
    if not converted:
        raise CommandError(
            "error: no JobSet in what was given runs torchrun, accelerate launch or deepspeed"
        )
    yaml.safe_dump_all(documents, sys.stdout, sort_keys=False, allow_unicode=True)
    for note in notes:
        print(note, file=sys.stderr)  # noqa: T201
    return EXIT_ERROR if left else 0


def convert(jobset: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, Translation]]]:
    """Return a JobSet without launchers, and what replaced them with the containers' paths.

    Args:
        jobset: as a user wrote it. It stays as it is.
    """
    done = copy.deepcopy(jobset)
    found: list[tuple[str, Translation]] = []
    for at, job in objects(child(done, "spec"), "replicatedJobs"):
        template = child(job, "template", "spec", "template")
        for nth, container in objects(child(template, "spec"), "containers"):
            translation = translation_of(job, container)
            if translation is None:
                continue
            path = f"spec.replicatedJobs[{at}].template.spec.template.spec.containers[{nth}]"
            found.append((path, translation))
            if translation.command:
                assert isinstance(template, dict), "a template of YAML is changed in place"
                assert isinstance(container, dict), "a container of YAML is changed in place"
                _replace(template, container, translation)
    if any(translation.command for _, translation in found):
        _restart_in_place(done, max(each.max_restarts for _, each in found))
    return done, found


def _replace(template: dict[str, Any], container: dict[str, Any], translation: Translation) -> None:
    """Write the command and variables into a container, annotations into its template."""
    container["command"] = list(translation.command)
    container.pop("args", None)
    gone = {*OWN_NAMES, *translation.env}
    env = [each for _, each in objects(container, "env") if text(each, "name") not in gone]
    env += [{"name": name, "value": value} for name, value in translation.env.items()]
    container["env"] = env
    if not env:
        del container["env"]
    annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
    if translation.processes is not None:
        annotations[keys.IN_PLACE_PROCESSES_ANNOTATION] = str(translation.processes)
    if translation.preloads:
        annotations.setdefault(keys.IN_PLACE_PRELOAD_ANNOTATION, "auto")
    if len(template["spec"]["containers"]) > 1:
        annotations[keys.IN_PLACE_CONTAINER_ANNOTATION] = text(container, "name")


def _restart_in_place(jobset: dict[str, Any], max_restarts: int) -> None:
    """Have the whole JobSet restart in place, with supervisors."""
    metadata = jobset.setdefault("metadata", {})
    notes = metadata.setdefault("annotations", {})
    notes[keys.IN_PLACE_AGENT_ANNOTATION] = "supervisor"
    policy = jobset["spec"].setdefault("failurePolicy", {})
    policy["restartStrategy"] = keys.IN_PLACE_RESTART
    policy.setdefault("maxRestarts", max_restarts or MAX_RESTARTS)


def _notes(path: str, translation: Translation) -> Iterator[str]:
    verb = "replaced" if translation.command else "left"
    yield f"{path}: {translation.launcher} is {verb}"
    for note in translation.notes:
        yield f"{path}: {note}"
