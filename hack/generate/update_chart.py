"""Makes the parts of the chart that are written elsewhere already, and the table in its README.

``files/`` are the rules, policies and webhooks of ``config/``, ``crds/`` is its definition; the
version is that of the package. ``--verify`` says which file is not what this makes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from hack.generate.generated import ROOT
from hack.generate.kustomize import render

CONFIG = ROOT / "config"
CHART = ROOT / "charts" / "jobsetpy"
PACKAGE = ROOT / "src" / "jobsetpy" / "__init__.py"
BEGIN, END = "<!-- values: made by hack/generate/update_chart.py -->\n", "<!-- end of values -->\n"

PARTS: Mapping[str, tuple[str, str, str, str]] = {
    # file in files/: folder or file in config/, kind, name, field
    "manager-role": ("rbac", "ClusterRole", "jobset-manager-role", "rules"),
    "manager-successor-role": ("rbac", "ClusterRole", "jobset-manager-successor-role", "rules"),
    "proxy-role": ("rbac", "ClusterRole", "jobset-proxy-role", "rules"),
    "metrics-reader": ("rbac", "ClusterRole", "jobset-metrics-reader", "rules"),
    "jobset-editor-role": ("rbac", "ClusterRole", "jobset-editor-role", "rules"),
    "jobset-viewer-role": ("rbac", "ClusterRole", "jobset-viewer-role", "rules"),
    "leader-election-role": ("rbac", "Role", "jobset-leader-election-role", "rules"),
    "webhook-role": ("webhook", "ClusterRole", "jobset-webhook-role", "rules"),
    "manager-secrets-role": ("webhook", "Role", "jobset-manager-secrets-role", "rules"),
    "manager-group-role": ("group-scheduling", "ClusterRole", "jobset-manager-group-role", "rules"),
    "prometheus-k8s": ("components/prometheus", "Role", "jobset-prometheus-k8s", "rules"),
    "mutating-webhooks": (
        "webhook",
        "MutatingWebhookConfiguration",
        "jobset-mutating-webhook-configuration",
        "webhooks",
    ),
    "validating-webhooks": (
        "webhook",
        "ValidatingWebhookConfiguration",
        "jobset-validating-webhook-configuration",
        "webhooks",
    ),
    "agent": ("agent/account", "Role", "jobset-agent", "rules"),
    "agent-policy": ("agent/policy", "ValidatingAdmissionPolicy", "jobset-agent", "spec"),
    "agent-priority-level": ("agent/flow", "PriorityLevelConfiguration", "jobset-agents", "spec"),
    "agent-flow-schema": ("agent/flow", "FlowSchema", "jobset-agents", "spec"),
    "prometheus-rules": (
        "components/prometheus",
        "PrometheusRule",
        "jobset-controller-manager-rules",
        "spec",
    ),
    "grafana-dashboard": ("components/grafana", "ConfigMap", "jobset-dashboard", "data"),
}
WHOLE: Mapping[str, tuple[str, str]] = {
    # file in files/: folder in config/, what begins the names that are the release's
    "coscheduler-cluster-scheduler": ("coscheduler/cluster-scheduler", "jobset-coscheduler"),
    "coscheduler-marked-pods": ("coscheduler/marked-pods", "jobset-coscheduler"),
    "coscheduler-second-scheduler": ("coscheduler/second-scheduler", "jobset-coscheduler"),
    "coscheduler-certificates": ("coscheduler/cert-manager", "jobset-coscheduler"),
    "coscheduling-policy": ("coscheduler-admission/policy", "jobset-coscheduling"),
}
"""Objects that the chart has as they are, with "@FULLNAME@" and "@NAMESPACE@" for its own names."""
GROUP_WEBHOOKS = ("mutating", "validating")
OWN_LABELS = "app.kubernetes.io/"


def part(folder: str, kind: str, name: str, field: str) -> str:
    """A field of an object in ``config/``, as YAML."""
    for path in sorted((CONFIG / folder).glob("*.yaml")):
        for item in yaml.safe_load_all(path.read_text()):
            if not isinstance(item, dict) or item.get("kind") != kind:
                continue
            if item["metadata"]["name"] == name:
                text = yaml.safe_dump(item[field], sort_keys=False, width=1000)
                return f"# From config/{folder}; made by hack/generate/update_chart.py.\n{text}"
    raise SystemExit(f"config/{folder} has no {kind} {name}")


def whole(folder: str, begin: str) -> str:
    """All objects of a kustomization, as a list in YAML."""
    if (CONFIG / folder / "certificates.yaml").exists():  # a component's patches are the chart's
        objects = list(yaml.safe_load_all((CONFIG / folder / "certificates.yaml").read_text()))
    else:
        objects = render(CONFIG / folder)
    for item in objects:
        labels = item["metadata"].pop("labels", {})
        if kept := {key: label for key, label in labels.items() if not key.startswith(OWN_LABELS)}:
            item["metadata"]["labels"] = kept
    text: str = yaml.safe_dump(objects, sort_keys=False, width=1000)
    own = begin.replace("jobset", "@FULLNAME@", 1)
    text = text.replace(begin, own).replace("jobset-system", "@NAMESPACE@")
    return f"# From config/{folder}; made by hack/generate/update_chart.py.\n{text}"


def group_webhook(kind: str) -> str:
    """The webhook for pods of groups that others make, as a list in YAML."""
    folder = "coscheduler-admission/webhook"
    (patch,) = yaml.safe_load((CONFIG / folder / f"{kind}_patch.yaml").read_text())
    text: str = yaml.safe_dump([patch["value"]], sort_keys=False, width=1000)
    return f"# From config/{folder}; made by hack/generate/update_chart.py.\n{text}"


def version() -> str:
    """The package's version."""
    found = re.search(r'^__version__ = "(.*)"$', PACKAGE.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{PACKAGE} says no version")
    return found[1]


def chart_yaml(text: str) -> str:
    """Chart.yaml with the package's version."""
    return re.sub(r"^(version|appVersion): .*$", rf"\1: {version()}", text, flags=re.MULTILINE)


def rows(text: str) -> Iterator[tuple[str, Any, str]]:
    """Path, default and description of each value that has a comment of "# --" right above it.

    Raises:
        ValueError: a value has none, nor has one that it is part of.
    """
    path: list[tuple[int, str]] = []
    described: int | None = None  # indentation of the value whose parts need no description
    about = ""
    for line in text.splitlines():
        indent, bare = len(line) - len(line.lstrip()), line.strip()
        if bare.startswith("# -- "):
            about = bare.removeprefix("# -- ")
            continue
        found = re.match(r"(\w+):( |$)", bare)
        if not bare or bare.startswith("#"):
            continue
        if described is not None and (indent > described or bare.startswith("- ")):
            continue
        described = None
        if found is None:
            raise ValueError(f"values.yaml: not understood: {line}")
        path = [*(each for each in path if each[0] < indent), (indent, found[1])]
        names = [name for _, name in path]
        default = value(yaml.safe_load(text), names)
        if about:
            yield ".".join(names), default, about
            described = indent
        elif not isinstance(default, dict) or not default:
            raise ValueError(f"values.yaml: {'.'.join(names)} has no comment")
        about = ""


def value(values: Any, path: Sequence[str]) -> Any:
    """The value at a path."""
    for name in path:
        values = values[name]
    return values


def readme(text: str) -> str:
    """README.md with the table of values."""
    lines = ["| Value | Default | What it is |", "|---|---|---|"]
    for name, default, about in rows((CHART / "values.yaml").read_text()):
        shown = json.dumps(default).replace("|", "\\|")
        lines.append(f"| `{name}` | `{shown}` | {about.replace('|', '/')} |")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}{chr(10).join(lines)}\n{END}{tail}"


def wanted() -> dict[Path, str]:
    """Return the contents of each generated file."""
    definition = "jobset.x-k8s.io_jobsets.yaml"
    out = {CHART / "files" / f"{name}.yaml": part(*where) for name, where in PARTS.items()}
    out |= {CHART / "files" / f"{name}.yaml": whole(*where) for name, where in WHOLE.items()}
    out |= {
        CHART / "files" / f"{kind}-group-webhooks.yaml": group_webhook(kind)
        for kind in GROUP_WEBHOOKS
    }
    out[CHART / "crds" / definition] = (CONFIG / "crd" / definition).read_text()
    for path, make in ((CHART / "Chart.yaml", chart_yaml), (CHART / "README.md", readme)):
        out[path] = make(path.read_text())
    return out


def main(argv: Sequence[str]) -> int:
    """Write the files, or only look at them; the exit code is 1 if one differs."""
    files = wanted()
    made = {CHART / "crds", CHART / "files"}
    left = [path for folder in made for path in folder.glob("*") if path not in files]
    differ = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--verify" in argv:
        for path in (*differ, *left):
            print(f"{path.relative_to(ROOT)} is not what update_chart.py makes: make generate")
        return 1 if differ or left else 0
    for path in left:
        path.unlink()
    for path in differ:
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
