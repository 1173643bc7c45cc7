"""``make test-versions``: tests on several releases of Kubernetes, with recorded results.

For each release, one after the other, selected tests run against its own control plane and nodes,
and then again with older kubelets. The result of each subject is written to
``hack/docs/recorded/versions.json``, from which ``hack/generate/update_versions.py`` makes a page.
A subject that was not run keeps its previous result.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from hack.cluster._versions import KUBERNETES, SIDECAR_GATES, minor_of

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "hack/docs/recorded/versions.json"
RELEASES = (KUBERNETES, "1.36.3", "1.35.4")
"""Minor releases that Kubernetes supports: 1.34 was supported until October 2026."""
SIDECAR = "restart in place, sidecar"
MOVED = "moved on from the kubelets' release"
GROUPS = "test/e2e/test_group_scheduling.py"
OF_RELEASES = "test/e2e/test_releases.py"
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "install by manifests": (
        "test/integration/api/test_manifests_real.py::test_installation_is_accepted",
        "test/integration/api/test_manifests_real.py::test_sample_is_accepted",
    ),
    "install by chart": (
        "test/integration/charts/test_chart_real.py::test_chart_installs_upgrades_and_uninstalls",
    ),
    "admission": (
        "test/integration/admission/test_admission_real.py::test_defaults_are_stored",
        "test/integration/admission/test_admission_cases.py::test_common_jobset_is_accepted",
        "test/integration/admission/test_admission_cases.py::test_common_mistake_is_refused",
    ),
    "a JobSet's life": (
        "test/integration/checklist/test_checklist_basics.py",
        "test/integration/checklist/test_checklist_suspension.py",
    ),
    "failure policy": ("test/integration/checklist/test_checklist_failure.py",),
    "group scheduling": (f"{GROUPS}::test_startup_group_waits_for_a_pod_that_cannot_be_scheduled",),
    "coscheduling": ("test/e2e/test_coscheduling_node.py::test_gangs_start_one_after_the_other",),
    "restart in place, supervisor": (
        "test/e2e/test_supervisor_images.py::test_supervisor_works_in_any_image",
    ),
    SIDECAR: (
        "test/e2e/test_restart_in_place.py::test_group_restarts_in_place_when_a_worker_is_killed",
    ),
    MOVED: (f"{OF_RELEASES}::test_workers_run_on_when_the_control_plane_is_upgraded",),
}
"""Tests by subject. The first five subjects need only a control plane."""
WITH_NODES = tuple(SUBJECTS)[5:]
REPORTED = f"{OF_RELEASES}::test_sidecar_is_reported_when_no_kubelet_supports_it"
"""Test that sidecars are reported if no kubelet has the rule for them."""


@dataclass(frozen=True)
class Run:
    """One row: a control plane's release, and that of its kubelets."""

    kubernetes: str
    kubelet: str

    @property
    def environment(self) -> dict[str, str]:
        """Environment that selects these releases in tests and ``hack/cluster``."""
        return {
            "JOBSETPY_KUBERNETES_VERSION": self.kubernetes,
            "JOBSETPY_KUBELET_VERSION": self.kubelet,
            "JOBSETPY_FEATURE_GATES": ",".join(self._gates),
        }

    def subjects(self) -> list[str]:
        """Subjects to run; with older kubelets, only those that need nodes."""
        if self.kubelet != self.kubernetes:
            return list(WITH_NODES)
        return [subject for subject in SUBJECTS if subject != MOVED]

    def is_unsupported(self, subject: str) -> bool:
        """Return True if these releases do not support the subject, whatever the manager does."""
        return subject == SIDECAR and _numbers(self.kubelet) < (1, 36) and not self._gates

    def tests(self, subject: str) -> tuple[str, ...]:
        """Tests of a subject; for an unsupported one, the test that it is reported."""
        return (REPORTED,) if self.is_unsupported(subject) else SUBJECTS[subject]

    @property
    def _gates(self) -> list[str]:
        if self.kubelet != self.kubernetes:
            return []  # the other release may not know them
        return [f"{name}=true" for name in SIDECAR_GATES.get(minor_of(self.kubernetes), ())]


def between(old: str, new: str) -> list[str]:
    """Releases of the matrix after ``old``, up to and including ``new``, oldest first."""
    passed = {new, *(r for r in RELEASES if _numbers(old) < _numbers(r) < _numbers(new))}
    return sorted(passed, key=_numbers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the matrix or a part of it; return 1 if a subject failed."""
    parser = argparse.ArgumentParser(description="Tests against several Kubernetes releases.")
    parser.add_argument("--kubernetes", nargs="+", default=[], help="releases; default: all")
    parser.add_argument("--kubelet", nargs="+", default=[], help="only with these, older kubelets")
    parser.add_argument("--subject", action="append", choices=list(SUBJECTS), help="only this one")
    parser.add_argument("--out", type=Path, default=RECORDED, help="the file of results")
    given = parser.parse_args(argv)
    bad = False
    for run in pairs(given.kubernetes, given.kubelet):
        for subject in run.subjects():
            if given.subject and subject not in given.subject:
                continue
            found = play(run, subject)
            record(given.out, run, subject, found)
            bad |= bool(found["failed"])
            said = f"{found['passed']} passed, {len(found['failed'])} failed"
            print(f"== {run.kubernetes}, kubelet {run.kubelet}: {subject}: {said}", flush=True)
    return int(bad)


def pairs(kubernetes: Sequence[str], kubelets: Sequence[str]) -> list[Run]:
    """Return the requested runs; by default all releases, and the newest with older kubelets."""
    if kubelets:
        return [Run(each, kubelet) for each in kubernetes or RELEASES[:1] for kubelet in kubelets]
    own = [Run(release, release) for release in kubernetes or RELEASES]
    return own if kubernetes else [*own, *(Run(RELEASES[0], older) for older in RELEASES[1:])]


def play(run: Run, subject: str) -> dict[str, Any]:
    """Run a subject's tests; return the number that passed, and the names of those that failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "junit.xml")
        words = [f"--junitxml={file}", "-ojunit_family=xunit1", "-q", *run.tests(subject)]
        code = subprocess.run(
            [sys.executable, "-m", "pytest", *words],
            cwd=ROOT,
            check=False,
            env={**os.environ, **run.environment},
        ).returncode
        return result(code, file.read_text() if file.exists() else "<testsuites/>")


def result(code: int, junit: str) -> dict[str, Any]:
    """Read pytest's exit code and its report in JUnit's format."""
    passed, failed = set(), set()
    for case in ET.fromstring(junit).iter("testcase"):
        name = f"{case.get('file')}::{case.get('name')}"
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.add(name)
        elif "skipped" not in kinds:
            passed.add(name)
    if code not in (0, 5) and not failed:
        failed.add("not all tests ran")
    return {"passed": len(passed - failed), "failed": sorted(failed)}


def record(out: Path, run: Run, subject: str, found: Mapping[str, Any]) -> None:
    """Add one result to the file of results."""
    rows = json.loads(out.read_text()) if out.exists() else []
    key = {"kubernetes": run.kubernetes, "kubelet": run.kubelet}
    row = next((each for each in rows if key.items() <= each.items()), None)
    if row is None:
        row = {**key, "subjects": {}}
        rows.append(row)
    row["gates"] = run.environment["JOBSETPY_FEATURE_GATES"]
    row["machine"] = machine()
    row["subjects"][subject] = {"date": datetime.now(UTC).strftime("%Y-%m-%d"), **found}
    rows.sort(key=lambda each: (_numbers(each["kubernetes"]), _numbers(each["kubelet"])))
    rows.reverse()
    out.write_text(json.dumps(rows, indent=1) + "\n")


def machine() -> str:
    """Describe the machine's software that can affect nodes."""
    said = []
    for program in ("containerd", "runc"):
        try:
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=False, timeout=30
            )
        except FileNotFoundError:
            continue
        if found := re.search(r"\b(\d+\.\d+\.\d+)", done.stdout):
            said.append(f"{program} {found[1]}")
    groups = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    return ", ".join([platform.machine(), *said, f"cgroup {groups}"])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


if __name__ == "__main__":
    sys.exit(main())
