"""Kubeflow Trainer, installed by its module's own kustomizations, with our JobSets.

Its controller's program is in an image built here. Frameworks are left out: each image of a runtime
is replaced by one of the same name with a shell, and with the programs that the runtime starts.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hack.cluster import _build, _state
from hack.cluster._progress import Shown
from hack.images.archive import Image, Layer
from hack.images.basic import shell_image
from support import patience
from support.cluster.install import ROOT
from support.cluster.kubectl import Kubectl
from support.others.client_images import client_reference

NAMESPACE: Final = "kubeflow-system"
DEPLOYMENT: Final = "kubeflow-trainer-controller-manager"
RUNTIMES: Final = ("torch", "jax", "xgboost", "deepspeed", "mlx")
SSH_PORT: Final = 2222
SSH_SERVER: Final = f"#!/bin/sh\nexec nc -ll -p {SSH_PORT} -e true\n"
"""Program for which the workers of MPI wait; it is never connected to."""


def _module() -> Path:
    return _build.module_folder("trainer", _state.cache_dir(), Shown()) / "manifests"


@functools.cache
def runtimes() -> dict[str, dict[str, Any]]:
    """Return the module's ClusterTrainingRuntimes, by framework."""
    folder = _module() / "base" / "runtimes"
    paths = [folder / f"{name}_distributed.yaml" for name in RUNTIMES]
    return dict(zip(RUNTIMES, (yaml.safe_load(path.read_text()) for path in paths), strict=True))


def runtime_images() -> list[Path]:
    """Return the archives of all images of the runtimes."""
    names = sorted({name for each in runtimes().values() for name in _images(each)})
    return [_stand_in(name) for name in names]


def _images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "image":
                yield inner
            else:
                yield from _images(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _images(inner)


def _stand_in(name: str) -> Path:
    first, *rest = name.split("/")
    host = rest and ("." in first or ":" in first)
    reference = name if host else f"docker.io/{name}"
    if ":" not in reference.rpartition("/")[2]:
        reference += ":latest"
    extra = Layer()
    extra.file("usr/sbin/sshd", SSH_SERVER, mode=0o755)
    image = Image(reference=reference, layers=[*shell_image().layers, extra])
    archive = ROOT / "build" / "images" / f"{reference.rpartition('/')[2].replace(':', '-')}.tar"
    image.write(archive)
    return archive


def trainer_manifests(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return the objects of its installation, without the JobSet controller that it includes."""
    with tempfile.TemporaryDirectory() as place:
        copied = Path(place) / "manifests"
        shutil.copytree(_module(), copied, copy_function=shutil.copyfile)
        for folder in (copied, *copied.rglob("*/")):
            folder.chmod(0o700)
        path = copied / "overlays" / "manager" / "kustomization.yaml"
        kustomization = yaml.safe_load(path.read_text())
        kustomization["resources"].remove("../../third-party/jobset")
        path.write_text(yaml.safe_dump(kustomization))
        found = kubectl.rendered(path.parent)
    for each in found:
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            container["image"] = client_reference("trainer")
            container["imagePullPolicy"] = "IfNotPresent"
            container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
    return found


def install_trainer(kubectl: Kubectl) -> None:
    """Install Trainer and its runtimes, and wait until it is ready."""
    documents = trainer_manifests(kubectl)
    limit = f"--timeout={patience.scaled(100):.0f}s"
    # First: without them its controller ends, and restarts with growing back-off.
    kubectl.apply([each for each in documents if each["kind"] == "CustomResourceDefinition"])
    kubectl.apply(documents)
    kubectl("-n", NAMESPACE, "rollout", "status", "deployment", DEPLOYMENT, limit)
    documents = []
    for each in runtimes().values():
        labels = {"trainer.kubeflow.org/webhook-validation": "disabled"}
        each["metadata"]["labels"] |= labels  # as the module's overlay of runtimes does
        for job in each["spec"]["template"]["spec"]["replicatedJobs"]:
            for container in job["template"]["spec"]["template"]["spec"]["containers"]:
                container["imagePullPolicy"] = "IfNotPresent"
        documents.append(each)
    kubectl.apply(documents)
