"""Helm, and plain HTTP to the API server of its cluster."""

import json
import os
import tempfile
from pathlib import Path

import yaml

from support import commands, patience
from support.cluster.install import CLUSTER_SCOPED, path_of
from support.cluster.raw_api import RawApi

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "jobsetpy"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LIMIT_S = 60.0
POLL_S = 0.1
SERVICE_MONITOR = "monitoring.coreos.com/v1/ServiceMonitor"

EVERYTHING = {
    "commonLabels": {"team": "training"},
    "imagePullSecrets": [{"name": "pull"}],
    "image": {"registry": "images.test.invalid:5000", "pullSecrets": [{"name": "more"}]},
    "controller": {
        "replicas": 2,
        "annotations": {"note": "deployment"},
        "podAnnotations": {"note": "pod"},
        "podLabels": {"metrics": "enabled"},
        "env": [{"name": "A", "value": "b"}],
        "envFrom": [{"configMapRef": {"name": "more", "optional": True}}],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}
                    ]
                }
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
            }
        ],
        "priorityClassName": "system-cluster-critical",
        "podDisruptionBudget": {"enabled": True},
        "extraArgs": ["--kube-api-burst=7"],
    },
    "serviceAccount": {"annotations": {"note": "account"}},
    "featureGates": {"ElasticJobSet": False},
    "tls": {"minVersion": "VersionTLS12", "cipherSuites": ["TLS_RSA_WITH_AES_128_GCM_SHA256"]},
    "agent": {"namespaces": ["default"], "flowControl": {"enable": True}},
    "coscheduling": {"backend": "coscheduler", "admission": "policy"},
    "coscheduler": {"enable": True, "mode": "second-scheduler", "nodeSelector": {"a": "b"}},
    "grafana": {"dashboard": {"enable": True}},
    "groupScheduling": {"useAgent": True, "manageRbac": True},
    "certManager": {"enable": True},
    "prometheus": {"enable": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"enable": True},
}
"""Values with which the chart makes every object, except for the Secret that managers fill."""


class Helm:
    """The program, with its own folders and a cluster."""

    def __init__(self, program, folder, kubeconfig=None):
        self.program = program
        self.folder = folder
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "KUBECONFIG": str(kubeconfig or folder / "none"),
        }

    def run(self, *arguments, values=None):
        """Run it and return the finished process; `values` are passed in a file.

        Without an image in `values`, the chart gets that of a node.
        """
        if str(CHART) in arguments:
            image = {"repository": "jobsetpy-manager", **(values or {}).get("image", {})}
            values = {**(values or {}), "image": image}
        with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".json") as file:
            if values is not None:
                json.dump(values, file)
                file.flush()
                arguments = (*arguments, "--values", file.name)
            return commands.run(
                self.program, *arguments, timeout_s=120, env=self.env, cwd=self.folder
            )

    def ok(self, *arguments, values=None):
        """Run it successfully; return its output."""
        done = self.run(*arguments, values=values)
        assert done.returncode == 0, done.stderr

        return done.stdout

    def refused(self, *arguments, values=None):
        """Run it with a failure; return its error."""
        done = self.run(*arguments, values=values)
        assert done.returncode != 0, done.stdout

        return done.stderr

    def render(self, values=None, *, release="jobset", namespace="jobset-system", more=()):
        """Return rendered objects by kind and name."""
        apis = ("--api-versions", SERVICE_MONITOR)
        where = ("template", release, str(CHART), "--namespace", namespace, *apis, *more)
        found = [item for item in yaml.load_all(self.ok(*where, values=values), LOADER) if item]
        named = {(item["kind"], item["metadata"]["name"]): item for item in found}
        agents = {item["metadata"].get("namespace") for item in found} - {namespace, None}
        if not agents:
            assert len(named) == len(found)

        return named


class Kube:
    """Requests of the administrator of a cluster."""

    def __init__(self, kubeconfig):
        self.send = RawApi(kubeconfig)

    def served(self, path):
        """Wait until a newly defined kind is served."""
        patience.wait_for(lambda: self.get(path) is not None, LIMIT_S, poll_s=POLL_S)

    def get(self, path):
        """Return an object, or None."""
        answer = self.send("GET", path)
        return None if answer.status == 404 else answer.accepted()

    def text(self, path):
        """Return the text at a path."""
        answer = self.send("GET", path, accept="*/*")
        assert answer.status == 200, answer.text

        return answer.text

    def merge(self, path, body):
        """Return an object after a merge patch."""
        merge = "application/merge-patch+json"
        return self.send("PATCH", path, body, content_type=merge).accepted()

    def apply(self, document, namespace="default", **query):
        """Server-side apply; unknown fields and warnings are errors."""
        answer = self.send.apply(path_of(document, namespace), document, **query)
        assert answer.warnings == []

        return answer.accepted()

    def delete(self, document):
        """Delete an object if it exists."""
        answer = self.send("DELETE", path_of(document))
        assert answer.status in {200, 202, 404}, answer.message

    path = staticmethod(path_of)


def namespaced(document):
    """Return whether objects of the kind are in namespaces."""
    return document["kind"] not in CLUSTER_SCOPED
