"""Output of ``kubectl kustomize`` for the folders in ``config/``, without kubectl.

Not a general tool: it supports the fields that our own kustomizations use and fails on others, so
that tests and the demo install the same objects as users.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from jobsetpy.testing.apiserver._patches import json_patch

Objects = list[dict[str, Any]]
Places = list[tuple[str, tuple[str, ...]]]
"""Kinds of objects, and paths of their fields with image names, in addition to containers."""

FIELDS = {
    *("apiVersion", "kind", "resources", "components", "configurations"),
    *("patches", "labels", "images"),
}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # much faster, but needs libyaml
SELECTORS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "Deployment": (("spec", "selector", "matchLabels"), ("spec", "template", "metadata", "labels")),
    "Service": (("spec", "selector"),),
    "PodDisruptionBudget": (("spec", "selector", "matchLabels"),),
    "NetworkPolicy": (("spec", "podSelector", "matchLabels"),),
}
"""Paths in addition to ``metadata.labels`` that ``includeSelectors`` writes labels to."""


def render(
    folder: Path, *components: Path, images: Mapping[str, str] = MappingProxyType({})
) -> Objects:
    """Return the objects of a kustomization, ready to be applied.

    Args:
        folder: folder with the kustomization.
        components: folders of components to add to it.
        images: references that replace images of these names, as an overlay's ``images:`` does.

    Raises:
        ValueError: the kustomization uses an unsupported field.
    """
    places: Places = []
    found: Objects = []
    for each in (folder, *components):
        found = _accumulate(each, found, places)
    for name, reference in images.items():
        new, _, tag = reference.rpartition(":")
        _set_image({"name": name, "newName": new, "newTag": tag}, found, places)
    return found


def _accumulate(folder: Path, found: Objects, places: Places) -> Objects:
    """Add the folder's own objects to ``found``, then apply its changes to all of them.

    ``places`` grows: the image fields that a folder configures apply to all kustomizations that
    are based on it.
    """
    text = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(text) - FIELDS:
        raise ValueError(f"{folder}: cannot do {', '.join(sorted(unknown))}")
    for name in text.get("configurations", ()):
        places += _image_places(folder / name)
    found = [*found, *_resources(folder, text.get("resources", ()), places)]
    for name in text.get("components", ()):
        found = _accumulate(folder / name, found, places)
    for patch in text.get("patches", ()):
        found = _patched(folder, patch, found)
    for labels in text.get("labels", ()):
        _label(labels, found)
    for image in text.get("images", ()):
        _set_image(image, found, places)
    return found


def _image_places(path: Path) -> Iterator[tuple[str, tuple[str, ...]]]:
    text = yaml.safe_load(path.read_text())
    if set(text) != {"images"} or any(set(each) != {"kind", "path"} for each in text["images"]):
        raise ValueError(f"{path}: only images with kind and path are known")
    for each in text["images"]:
        yield each["kind"], tuple(each["path"].split("/"))


def _resources(folder: Path, names: Sequence[str], places: Places) -> Iterator[dict[str, Any]]:
    for name in names:
        path = folder / name
        if path.is_dir():
            yield from _accumulate(path, [], places)
        else:
            yield from (item for item in yaml.load_all(path.read_text(), LOADER) if item)


def _patched(folder: Path, patch: dict[str, Any], found: Objects) -> Objects:
    operations = yaml.safe_load(patch.get("patch") or (folder / patch["path"]).read_text())
    if not isinstance(operations, list) or set(patch) - {"path", "patch", "target"}:
        raise ValueError(f"{folder}: only JSON patches with a target are known, not {patch}")
    target = patch["target"]
    if set(target) != {"kind", "name"}:
        raise ValueError(f"{folder}: a target is a kind and a name, not {target}")
    wanted = (target["kind"], target["name"])
    if wanted not in {(item["kind"], item["metadata"]["name"]) for item in found}:
        raise ValueError(f"{folder}: there is no {target['kind']} {target['name']} to patch")
    return [
        json_patch(item, operations) if (item["kind"], item["metadata"]["name"]) == wanted else item
        for item in found
    ]


def _label(labels: dict[str, Any], found: Objects) -> None:
    if set(labels) - {"pairs", "includeSelectors"}:
        raise ValueError(f"labels: cannot do {sorted(labels)}")
    for item in found:
        places = [("metadata", "labels")]
        if labels.get("includeSelectors"):
            places += SELECTORS.get(item["kind"], ())
        for place in places:
            at = item
            for part in place:
                at = at.setdefault(part, {})
            at.update(copy.deepcopy(labels["pairs"]))


def _set_image(image: dict[str, str], found: Objects, places: Places) -> None:
    containers = ("spec", "template", "spec", "containers", "image")
    for item in found:
        for kind, path in (("Deployment", containers), *places):
            if item["kind"] == kind:
                _rename(image, item, path)


def _rename(image: dict[str, str], at: Any, path: Sequence[str]) -> None:
    """Rename the image at the end of ``path``, which goes through every item of a list."""
    for each in at if isinstance(at, list) else [at]:
        if path[0] not in each:
            continue
        if len(path) > 1:
            _rename(image, each[path[0]], path[1:])
            continue
        name, _, tag = each[path[0]].partition(":")
        if name == image["name"]:
            new = (image.get("newName", name), image.get("newTag", tag))
            each[path[0]] = ":".join(part for part in new if part)
