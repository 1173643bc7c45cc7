"""``jobsetpy run``: election and configuration file of custom controllers."""

import json

import pytest

from jobsetpy.app import process
from jobsetpy.app.config import settings
from jobsetpy.app.main import _parser

FILE = "leaderElection:\n  leaderElect: true\n  resourceNamespace: team\n"


@pytest.fixture(autouse=True)
def _logging_stays(monkeypatch):
    """Keep the log configuration for later tests."""
    monkeypatch.setattr(process.logging, "configure", lambda **_: None)


def configured(tmp_path, text, *flags):
    """Settings of ``jobsetpy run my_controllers.jobs:setup``."""
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n" + text)
    arguments = ["run", "my_controllers.jobs:setup", "--config", str(path), *flags]
    options = _parser(["run"]).parse_args(arguments)
    return process.configured(options, settings.RUN)[1]


def test_the_lease_is_named_after_the_controllers(tmp_path):
    """Programs without a configured Lease exclude neither each other nor JobSet's manager."""
    election = configured(tmp_path, FILE).leader_election
    assert (election.namespace, election.name) == ("team", "my-controllers-jobs-setup")


def test_several_namespaces(tmp_path):
    """``--namespace`` may be repeated; without it a controller watches all namespaces."""
    assert configured(tmp_path, "").namespaces == ()
    flags = ("--namespace", "a", "--namespace", "b")
    assert configured(tmp_path, "", *flags).namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("command", "flag"),
    [("run", "--namespace=Team"), ("manager", "--namespaces=a,B"), ("manager", "--namespaces=a,")],
)
def test_bad_namespaces_are_refused(capsys, command, flag):
    """The error has the rule for names; an empty name would mean all namespaces."""
    target = ["m:f"] if command == "run" else []
    with pytest.raises(SystemExit):
        _parser([command]).parse_args([command, *target, flag])
    error = capsys.readouterr().err
    assert "is no namespace" in error
    assert "RFC 1123 label" in error


def test_leader_elect_takes_the_namespace_of_the_context_outside_a_pod(tmp_path):
    """The flag overrides the file; a context without a namespace, or none, is an error."""
    text = FILE.replace("true", "false")
    assert configured(tmp_path, text).leader_election is None
    assert configured(tmp_path, text, "--leader-elect").leader_election.namespace == "team"
    context = {"name": "c", "context": {"cluster": "a", "user": "b", "namespace": "mine"}}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps({"contexts": [context], "current-context": "c"}))
    flags = ("--leader-elect", "--kubeconfig", str(file))
    assert configured(tmp_path, "", *flags).leader_election.namespace == "mine"
    with pytest.raises(SystemExit):
        configured(tmp_path, "", "--leader-elect", "--kubeconfig", str(tmp_path / "none"))
