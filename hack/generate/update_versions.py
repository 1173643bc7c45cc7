"""Make ``docs/reference/versions.md`` of what ``make test-versions`` recorded, or check it.

update_versions.py            write the page
update_versions.py --verify   write nothing; exit 1 and list the differences, if any
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hack.ci.versions import RECORDED, SIDECARS, SUBJECTS, Run, pairs
from hack.generate.generated import write_or_compare
from jobsetpy.api import keys
from jobsetpy.reconcilers.coscheduling.pod_groups import API_VERSION

PAGE = "docs/reference/versions.md"
HEAD = """\
<!-- Made by hack/generate/update_versions.py of hack/docs/recorded/versions.json. -->
# Which releases were tried

Columns are releases of the API server, controller manager and scheduler, and of the kubelets
where these are other ones. A number is how many tests passed; what failed is named below; what was
never run has a dash, and what there is no point in running is empty. No claim is made for a release
or a subject without a number. Where a release cannot do something, the number is of tests that the
manager says so.

"""
NOT_RUN = f"""
## What could not be tried

The machine that these were run on has neither cgroup version 2 nor containerd 2, and is no arm64
host: the images for arm64 were started under qemu-user only. Nothing here says how these do.
%s

## What a release must have

* Restart in place by sidecar: the pod rule `RestartAllContainers`, on kubelets of 1.36, or of 1.35
  with the gate `{SIDECARS}` on API server and kubelets.
  `kubectl jobset doctor` looks at the kubelets' releases; the webhooks refuse a new JobSet that has
  the rule where the API server is older than 1.35 and would drop it, and warn where no node
  declares that its kubelet knows it. Pods that wait for such a node are named with that reason by
  the JobSet's condition `{keys.BARRIER_STALLED_CONDITION}`.
* The backend `PodGroup` of coscheduling: `{API_VERSION}`, with the gates
  `GenericWorkload` and `GangScheduling` of 1.36. A manager whose API server does not serve it says
  so, and labels pods instead.
"""


def main(argv: Sequence[str]) -> int:
    """Write or compare the page; the exit code."""
    rows = json.loads(RECORDED.read_text())
    return write_or_compare([(PAGE, page(rows))], __doc__ or "", argv)


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The page's text."""
    made = "\n".join([*table(rows), "", *commands(rows)])
    return HEAD + made + "\n" + NOT_RUN % not_run(rows)


def not_run(rows: Sequence[Mapping[str, Any]]) -> str:
    """List the parts of the matrix that have no column."""
    known = [(row["kubernetes"], row["kubelet"]) for row in rows]
    missing = [
        name_of({"kubernetes": run.kubernetes, "kubelet": run.kubelet})
        for run in pairs([], [])
        if (run.kubernetes, run.kubelet) not in known
    ]
    named = f" Of the matrix these were not: {'; '.join(missing)}." if missing else ""
    return f"Minor releases that have no column were not run.{named}"


def table(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each subject, a column for each pair of releases."""
    yield "| | " + " | ".join(name_of(row) for row in rows) + " |"
    yield "|---|" + "---|" * len(rows)
    for subject in SUBJECTS:
        cells = [cell(Run(row["kubernetes"], row["kubelet"]), subject, row) for row in rows]
        yield f"| {subject} | " + " | ".join(cells) + " |"


def name_of(row: Mapping[str, Any]) -> str:
    """A column's heading."""
    own = f"Kubernetes {row['kubernetes']}"
    return own if row["kubelet"] == row["kubernetes"] else f"{own}, kubelets {row['kubelet']}"


def cell(run: Run, subject: str, row: Mapping[str, Any]) -> str:
    """Return the outcome of a subject."""
    if subject not in run.subjects():
        return ""
    result = row["subjects"].get(subject)
    absent = "not in this release; reported: " if run.lacks(subject) else ""
    if result is None:
        return f"{absent}-"
    if result["failed"]:
        return f"{absent}**failed**: {len(result['failed'])}, passed: {result['passed']}"
    return f"{absent}{result['passed']}"


def commands(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """When, where and by which command each column was made, and what failed in it."""
    for row in rows:
        dates = sorted({result["date"] for result in row["subjects"].values()})
        words = f"--kubernetes {row['kubernetes']}"
        if row["kubelet"] != row["kubernetes"]:
            words += f" --kubelet {row['kubelet']}"
        gates = f"; gates `{row['gates']}`" if row["gates"] else ""
        yield (
            f"* {name_of(row)}: {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}, "
            f'`make test-versions ARGS="{words}"`; {row["machine"]}{gates}'
        )
        for subject, result in row["subjects"].items():
            yield from (f"  * failed, {subject}: `{test}`" for test in result["failed"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
