"""JobSets in files, and their admission without a cluster.

What the API server does by the CRD (defaults, types, enumerations, unknown fields) is done
here from the same schema that the CRD is made of; what webhooks do, by their own functions.
"""

from __future__ import annotations

import copy
import functools
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from jobsetpy.api import keys
from jobsetpy.api.schema import jobset_crd
from jobsetpy.api.structural_schema import complete, problems, unknown_fields
from jobsetpy.kubectl.errors import CommandError
from jobsetpy.reconcilers.restart_in_place.injection.agent import inject
from jobsetpy.reconcilers.restart_in_place.injection.effective import ClusterDefaults, fill
from jobsetpy.reconcilers.rules.annotations import check_annotations
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.field_errors import invalid
from jobsetpy.reconcilers.validation.create import claims_to_look_up, validate_create
from jobsetpy.reconcilers.validation.defaulting import default_jobset, rewrite_jobset
from jobsetpy.reconcilers.validation.warnings import warnings

_API_VERSION: Final = f"{keys.GROUP}/{keys.VERSION}"
SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Json = dict[str, Any]
Schema = Mapping[str, Any]


class Document(NamedTuple):
    """One document of a file.

    Args:
        place: file, and which of its documents if it has several.
        data: its content; ``None`` if it cannot be read.
        problem: reason why it cannot be read.
    """

    place: str
    data: Json | None
    problem: str = ""

    @property
    def is_jobset(self) -> bool:
        """Return True for a JobSet, of a misspelt API group as well: :func:`judge` refuses it."""
        return (self.data or {}).get("kind") == "JobSet"


class Verdict(NamedTuple):
    """Result of admission for a JobSet.

    Args:
        jobset: the JobSet with all defaults.
        errors: reasons why it is refused.
        warnings: warnings for its user.
    """

    jobset: Json
    errors: list[str]
    warnings: list[str]


def read(paths: Sequence[str]) -> Iterator[Document]:
    """Yield every document of files, of the files in folders, and of standard input for ``-``.

    Raises:
        CommandError: a file does not exist.
    """
    for path in paths:
        if path == "-":
            yield from _split("standard input", sys.stdin.read())
            continue
        place = Path(path)
        if not place.exists():
            raise CommandError(f'error: the path "{path}" does not exist')
        files = [place]
        if place.is_dir():
            files = sorted(each for each in place.iterdir() if each.suffix in SUFFIXES)
        for file in files:
            try:
                yield from _split(str(file), file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError) as problem:
                yield Document(str(file), None, f"cannot be read: {problem}")


def _split(place: str, text: str) -> Iterator[Document]:
    """Yield the documents of a text separately, so that a broken one does not hide the others."""
    bodies = [body for body in re.split(r"(?m)^---(?=\s|$)", text) if body.strip()]
    for number, body in enumerate(bodies, 1):
        yield from _parsed(f"{place}, document {number}" if len(bodies) > 1 else place, body)


def _parsed(where: str, body: str) -> Iterator[Document]:
    """Yield the objects of one document, which may be a list."""
    try:
        data = yaml.load(body, _LOADER)  # noqa: S506 - a safe loader, perhaps in C
    except yaml.YAMLError as problem:
        yield Document(where, None, f"error parsing: {' '.join(str(problem).split())}")
        return
    if data is None:
        return  # comments alone
    is_list = isinstance(data, dict) and str(data.get("kind", "")).endswith("List")
    items = data.get("items") if is_list else None
    for each in items if isinstance(items, list) else [data]:
        if not isinstance(each, dict):
            yield Document(where, None, "is no Kubernetes object")
            continue
        try:
            yield Document(where, json.loads(json.dumps(each, default=str)))
        except (TypeError, ValueError, RecursionError) as problem:
            yield Document(where, None, f"is no JSON: {problem}")


def judge(data: Json, features: Features, agent_image: str = "jobsetpy-agent") -> Verdict:
    """Decide on a new JobSet as API server and webhooks do.

    Args:
        data: of the manifest.
        features: the manager's feature gates.
        agent_image: that the manager would inject.
    """
    schema, status = _schema(), data.get("status")
    jobset = {name: value for name, value in data.items() if name != "status"}
    errors = [
        f'strict decoding error: unknown field "{field}"'
        for field in unknown_fields(schema, jobset)
    ]
    version = data.get("apiVersion", _API_VERSION)
    if version != _API_VERSION:
        errors.append(str(invalid("apiVersion", version, f'must be "{_API_VERSION}"')))
    jobset = complete(schema, dict(rewrite_jobset(jobset)[0]))
    wrong = [f"{cause['field']}: {cause['message']}" for cause in problems(schema, jobset)]
    if status is not None:
        jobset["status"] = status
    if wrong:
        return Verdict(jobset, errors + wrong, [])
    # Admission only warns: another project's newer version may have defined it.
    errors += [str(each) for each in check_annotations(jobset).warnings]
    jobset = copy.deepcopy(dict(fill(jobset, {}, ClusterDefaults()).jobset))
    if features.in_place_restart:
        injected = inject(jobset, image=agent_image)
        if injected.problems:
            return Verdict(jobset, errors + [str(each) for each in injected.problems], [])
        jobset = copy.deepcopy(dict(injected.jobset))
    for step in default_jobset(jobset):
        _apply(jobset, step)
    claims = dict.fromkeys(claims_to_look_up(jobset))
    refused = validate_create(jobset, features=features, claims=claims)
    errors += list(dict.fromkeys(str(each) for each in refused))
    warned = [] if refused else [str(each) for each in warnings(jobset, features)]
    warned = [each for each in warned if each not in errors]
    return Verdict(jobset, errors, warned)


@functools.cache
def _schema() -> Schema:
    found: Schema = jobset_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def _apply(jobset: Json, step: Mapping[str, Any]) -> None:
    """Carry out an ``add`` of defaulting."""
    *parents, last = [part for part in step["path"].split("/") if part]
    at: Any = jobset
    for part in parents:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[last] = copy.deepcopy(step["value"])
