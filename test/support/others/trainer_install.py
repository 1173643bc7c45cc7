"""Kubeflow Trainer, installed by its module's own Helm chart, with our JobSets.

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
from hack.cluster._binaries import Binaries
from hack.cluster._progress import Shown
from hack.images.archive import Image, Layer
from hack.images.basic import shell_image
from support import patience
from support.cluster.chart_kit import LOADER, Helm
from support.cluster.install import ROOT
from support.cluster.kubectl import Kubectl
from support.others.client_images import client_reference

NAMESPACE: Final = "kubeflow-system"
RELEASE: Final = "kubeflow-trainer"
DEPLOYMENT: Final = f"{RELEASE}-controller-manager"
RUNTIMES: Final = ("torch", "jax", "xgboost", "deepspeed", "mlx")
SSH_PORT: Final = 2222
SSH_SERVER: Final = f"#!/bin/sh\nexec nc -ll -p {SSH_PORT} -e true\n"
"""Program for which the workers of MPI wait; it is never connected to."""


def _module() -> Path:
    return _build.module_folder("trainer", _state.cache_dir(), Shown())


@functools.cache
def runtimes() -> dict[str, dict[str, Any]]:
    """Return the module's ClusterTrainingRuntimes, by framework."""
    folder = _module() / "manifests" / "base" / "runtimes"
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


def trainer_objects() -> list[dict[str, Any]]:
    """Return the objects of its Helm chart, without the JobSet controller that it includes.

    Charts in a registry, on which it depends, are replaced by ones with an object of their name.
    """
    with tempfile.TemporaryDirectory() as place:
        chart = Path(place) / "chart"
        shutil.copytree(_module() / "charts" / RELEASE, chart, copy_function=shutil.copyfile)
        for folder in (chart, *chart.rglob("*/")):
            folder.chmod(0o700)
        for each in yaml.safe_load((chart / "Chart.yaml").read_text())["dependencies"]:
            part = chart / "charts" / each["name"]
            (part / "templates").mkdir(parents=True)
            head = {"apiVersion": "v2", "name": each["name"], "version": each["version"]}
            (part / "Chart.yaml").write_text(yaml.safe_dump(head))
            stand_in = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}}
            (part / "templates" / "stand_in.yaml").write_text(yaml.safe_dump(stand_in))
        helm = Helm(Binaries.find(["helm"], Shown())["helm"], Path(place))
        words = ("-n", NAMESPACE, "--set", "jobset.install=false")
        text = helm.ok("template", RELEASE, str(chart), *words)
    found = [each for each in yaml.load_all(text, LOADER) if each]
    for each in found:
        assert each["metadata"]["name"] not in {"jobset", "lws"}
        if each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            container["image"] = client_reference("trainer")
            container["readinessProbe"] |= {"initialDelaySeconds": 0, "periodSeconds": 1}
    return found


def install_trainer(kubectl: Kubectl) -> None:
    """Install Trainer and its runtimes, and wait until it is ready."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    documents = [namespace, *trainer_objects()]
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
