"""``kubectl jobset explain``: settings with their sources."""

from __future__ import annotations

import json

import pytest
import yaml

from jobsetpy.api import keys
from jobsetpy.kubectl import main as plugin
from jobsetpy.kubectl.outcomes import outcomes
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
    assert found["spec.failurePolicy"]["source"] == "JobSet, or word: fast"
    grace = found["in-place-restart-grace-seconds"]
    assert (grace["value"], grace["source"]) == ("60", "pod template of w")
    assert grace["page"] == "docs/how-to/restart-in-place.md"
    assert found["lost-node-deadline"]["source"] == "default"
    assert "coscheduling-targets" not in found


@pytest.mark.parametrize(
    ("notes", "spec", "failure", "leads_to"),
    [
        ({}, {}, "a worker ends with an error", "all workers restart in their pods"),
        ({}, {}, "a pod is deleted, evicted or drained", "its Job replaces the pod"),
        ({keys.IN_PLACE_SPARES_ANNOTATION: "1"}, {}, "a pod is deleted", "a ready spare takes its"),
        ({keys.IN_PLACE_END_CODES_ANNOTATION: "4"}, {}, "a worker ends with 4", "its pod ends"),
        ({keys.LOST_NODE_DEADLINE_ANNOTATION: "60s"}, {}, "a node is lost", "given up after 60s"),
        ({keys.IN_PLACE_HANG_ANNOTATION: "30"}, {}, "no new step for 30 s", "the worker is killed"),
        ({}, {}, "a worker hangs", "not detected"),
        ({}, {}, "more than 7 counted restarts", "ReachedMaxRestarts"),
        ({}, {"restartStrategy": "Recreate"}, "a Job fails", "all Jobs are created again"),
        (
            {},
            {"rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}]},
            "a Job fails; JobFailureReasons PodFailurePolicy",
            "FailJobSet",
        ),
    ],
)
def test_each_failure_has_its_outcome(notes, spec, failure, leads_to):
    """By the settings alone, without a cluster."""
    body = injection_kit.jobset(mode="supervisor", notes=notes)
    body["spec"]["failurePolicy"] |= {"maxRestarts": 7, **spec}
    found = [each for each in outcomes(body) if each.failure.startswith(failure)]

    assert [leads_to in each.leads_to for each in found] == [True]


def test_refused_manifest_is_explained_with_its_errors(manifest, capsys):
    """The exit code is that of lint."""
    manifest.write_text(manifest.read_text().replace("'60'", "soon"))

    assert plugin.main(["explain", str(manifest)]) == 1
    assert "error: spec.replicatedJobs[0].template.spec.template" in capsys.readouterr().out


def test_tables_are_no_wider_than_a_page_when_there_is_no_terminal(manifest, capsys):
    """Names and pages stay whole: long texts continue below, at the gaps between words."""
    assert plugin.main(["explain", str(manifest)]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert max(map(len, lines)) <= 132
    assert sum("in-place-restart-standby-delay-seconds   30" in line for line in lines) == 1
    assert sum("`restarts.recreationBackoff`" in line for line in lines) == 1
    assert sum("docs/how-to/restart-in-place.md" in line for line in lines) > 1


def test_missing_file_is_an_error(tmp_path, capsys):
    """It is not taken for the name of a JobSet."""
    assert plugin.main(["explain", str(tmp_path / "no.yaml")]) == 1
    assert "does not exist" in capsys.readouterr().err
