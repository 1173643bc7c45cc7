"""Checks of the examples that need no cluster: headers, index, images, samples."""

import re
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[3]
EXAMPLES = REPOSITORY / "examples"
FILES = sorted(str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.yaml"))
SAMPLES = {
    "simple.yaml": "simple/jobset.yaml",
    "in_place_restart.yaml": "in-place-restart/sidecar.yaml",
    "in_place_restart_supervised.yaml": "in-place-restart/supervised.yaml",
}


def header(path: str) -> list[str]:
    """Lines of the comment at the begin of a manifest."""
    lines = (EXAMPLES / path).read_text().splitlines()
    end = next(at for at, line in enumerate(lines) if not line.startswith("#"))
    return lines[:end]


def containers(path: str) -> list[dict]:
    """All containers of a manifest's JobSet, or of a runtime's JobSet template."""
    documents = list(yaml.safe_load_all((EXAMPLES / path).read_text()))
    jobsets = [each for each in documents if each["kind"] == "JobSet"]
    jobsets += [
        each["spec"]["template"] for each in documents if each["kind"] == "ClusterTrainingRuntime"
    ]
    (jobset,) = jobsets
    pods = [each["template"]["spec"]["template"] for each in jobset["spec"]["replicatedJobs"]]
    kinds = ("initContainers", "containers")
    return [each for pod in pods for kind in kinds for each in pod["spec"].get(kind, ())]


@pytest.mark.parametrize("path", FILES)
def test_the_header_has_the_outcome(path):
    """Each manifest begins with its purpose, and its outcome."""
    lines = header(path)
    assert lines[0].startswith("# ")
    assert sum(line.startswith("# Outcome: ") for line in lines) == 1
    assert max(map(len, lines)) <= 104


@pytest.mark.parametrize("path", FILES)
def test_images_have_short_names_and_versions(path):
    """An example uses short names of public images, and no ``latest`` of other projects."""
    for container in containers(path):
        name, _, tag = container["image"].partition(":")
        assert "." not in name.split("/")[0], "no registry's host name"
        assert tag
        assert tag != "latest" or name == "jobsetpy-agent"


def test_the_index_has_every_manifest():
    """The index links each manifest once, and no missing file."""
    text = (EXAMPLES / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("..")]
    assert sorted(links) == sorted([*FILES, "failed_pod_counter.py"])


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_an_example(name):
    """The sample that kustomize installs equals the example."""
    sample = (REPOSITORY / "config/samples" / name).read_text()
    assert sample == (EXAMPLES / SAMPLES[name]).read_text()


def test_all_samples_are_compared():
    """Every sample is in the comparison."""
    found = {path.name for path in (REPOSITORY / "config/samples").glob("*.yaml")}
    assert found == {*SAMPLES, "kustomization.yaml"}
