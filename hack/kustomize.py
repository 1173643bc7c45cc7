"""What ``kubectl kustomize`` makes of the folders in ``config/``, where there is no kubectl.

Not a general tool: the fields that our own kustomizations use, and an error for any other, so that
tests and demo install what users install.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from jobsetpy.testing._patches import json_patch

Objects = list[dict[str, Any]]

FIELDS = {"apiVersion", "kind", "resources", "components", "patches", "labels", "images"}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # far faster, where there is a library
SELECTORS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "Deployment": (("spec", "selector", "matchLabels"), ("spec", "template", "metadata", "labels")),
    "Service": (("spec", "selector"),),
    "PodDisruptionBudget": (("spec", "selector", "matchLabels"),),
    "NetworkPolicy": (("spec", "podSelector", "matchLabels"),),
}
"""Where labels that are put into selectors go, beyond ``metadata.labels``."""


def render(folder: Path, *components: Path) -> Objects:
    """Every object of a kustomization, as it is to be applied.

    Args:
        folder: with the kustomization.
        components: folders of components that are added to it.

    Raises:
        ValueError: the kustomization uses what this does not know.
    """
    return functools.reduce(lambda found, each: _accumulate(each, found), (folder, *components), [])


def _accumulate(folder: Path, found: Objects) -> Objects:
    """Add the folder's own objects to ``found``, then change all of these as it says."""
    text = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if unknown := set(text) - FIELDS:
        raise ValueError(f"{folder}: cannot do {', '.join(sorted(unknown))}")
    found = [*found, *_resources(folder, text.get("resources", ()))]
    for name in text.get("components", ()):
        found = _accumulate(folder / name, found)
    for patch in text.get("patches", ()):
        found = _patched(folder, patch, found)
    for labels in text.get("labels", ()):
        _label(labels, found)
    for image in text.get("images", ()):
        _set_image(image, found)
    return found


def _resources(folder: Path, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        path = folder / name
        if path.is_dir():
            yield from render(path)
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


def _set_image(image: dict[str, str], found: Objects) -> None:
    for item in found:
        if item["kind"] == "Deployment":
            for container in item["spec"]["template"]["spec"]["containers"]:
                name, _, tag = container["image"].partition(":")
                if name == image["name"]:
                    new = (image.get("newName", name), image.get("newTag", tag))
                    container["image"] = ":".join(part for part in new if part)
