"""``kubectl jobset explain``: settings with their sources."""

from __future__ import annotations

import json

import pytest
import yaml

from jobsetpy.api import keys
from jobsetpy.kubectl import main as plugin
from support.restarts import injection_kit


@pytest.fixture
def manifest(tmp_path):
    """A manifest with the word, and a setting of its own in a template."""
    own = {keys.IN_PLACE_GRACE_ANNOTATION: "60"}
    notes = {keys.IN_PLACE_RESTART_ANNOTATION: "fast"}
    body = injection_kit.jobset(injection_kit.job(notes=own, completions=2), mode=None, notes=notes)
    body |= {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    path = tmp_path / "train.yaml"
    path.write_text(yaml.safe_dump(body))
    return path


def test_each_setting_has_its_source_and_its_page(manifest, capsys):
    """The word, the JobSet, a template, or the default."""
    assert plugin.main(["explain", str(manifest), "-o", "json"]) == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}

    assert {name: found[f"in-place-restart{name}"]["source"] for name in ("", "-agent")} == {
        "": "JobSet",
        "-agent": "word: fast",
    }
    grace = found["in-place-restart-grace-seconds"]
    assert (grace["value"], grace["source"]) == ("60", "pod template of w")
    assert grace["page"] == "docs/how-to/restart-in-place.md"
    assert found["lost-node-deadline"]["source"] == "default"
    assert "coscheduling-targets" not in found


def test_refused_manifest_is_explained_with_its_errors(manifest, capsys):
    """The exit code is that of lint."""
    manifest.write_text(manifest.read_text().replace("'60'", "soon"))

    assert plugin.main(["explain", str(manifest)]) == 1
    assert "error: spec.replicatedJobs[0].template.spec.template" in capsys.readouterr().out


def test_missing_file_is_an_error(tmp_path, capsys):
    """It is not taken for the name of a JobSet."""
    assert plugin.main(["explain", str(tmp_path / "no.yaml")]) == 1
    assert "does not exist" in capsys.readouterr().err
