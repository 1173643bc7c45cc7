"""``jobsetpy run``: election and configuration file for controllers of one's own."""

import pytest

from jobsetpy.app import process, wiring
from jobsetpy.app.config import flags, settings
from jobsetpy.app.config.election import with_lease_named_after, with_lease_of_shard
from jobsetpy.app.main import _parser
from jobsetpy.informers import Shard

FILE = "leaderElection:\n  leaderElect: true\n  resourceNamespace: team\n"


@pytest.fixture(autouse=True)
def _logging_stays(monkeypatch):
    """Logs of the tests that follow are set up by themselves."""
    monkeypatch.setattr(process.logging, "configure", lambda **_: None)


def configured(tmp_path, text, *flags):
    """What ``jobsetpy run my_controllers.jobs:setup`` runs with."""
    path = tmp_path / "config.yaml"
    path.write_text("apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n" + text)
    arguments = ["run", "my_controllers.jobs:setup", "--config", str(path), *flags]
    options = _parser(["run"]).parse_args(arguments)
    configuration, made = process.configured(options, settings.RUN)
    return with_lease_of_shard(with_lease_named_after(options.target, configuration, made))


def test_none_is_elected_unless_asked(tmp_path):
    """A controller that is tried out works at once."""
    assert configured(tmp_path, "").leader_election is None


def test_the_lease_is_named_after_the_controllers(tmp_path):
    """Two programs that name no Lease do not exclude each other, nor JobSet's manager."""
    election = configured(tmp_path, FILE).leader_election
    assert (election.namespace, election.name) == ("team", "my-controllers-jobs-setup")


def test_the_file_may_name_the_lease(tmp_path):
    """What is given counts."""
    election = configured(tmp_path, FILE + "  resourceName: mine\n").leader_election
    assert election.name == "mine"


def test_several_namespaces(tmp_path):
    """``--namespace`` may be given again; without it a controller looks everywhere."""
    assert configured(tmp_path, "").namespaces == ()
    flags = ("--namespace", "a", "--namespace", "b")
    assert configured(tmp_path, "", *flags).namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("command", "flag"),
    [("run", "--namespace=Team"), ("manager", "--namespaces=a,B"), ("manager", "--namespaces=a,")],
)
def test_bad_namespaces_are_refused(capsys, command, flag):
    """A name that no namespace can have is told with the rule; an empty one would mean all."""
    target = ["m:f"] if command == "run" else []
    with pytest.raises(SystemExit):
        _parser([command]).parse_args([command, *target, flag])
    told = capsys.readouterr().err
    assert "is no namespace" in told
    assert "RFC 1123 label" in told


def test_namespaces_of_the_manager():
    """``--namespaces`` takes several, and may be given again."""
    options = _parser(["manager"]).parse_args(["manager", "--namespaces", "a,b", "--namespaces=c"])
    configuration = flags.read(options, settings.MANAGER)
    assert wiring.manager_settings(configuration).namespaces == ("a", "b", "c")


def test_a_shard_has_a_lease_of_its_own(tmp_path):
    """Processes of other shards lead at the same time, whoever named the Lease."""
    assert configured(tmp_path, "").shard is None
    text = FILE + "  resourceName: mine\n"
    settings = configured(tmp_path, text, "--shard", "1/3")
    assert settings.shard == Shard(1, 3)
    assert settings.leader_election.name == "mine-shard-1-of-3"


@pytest.mark.parametrize("shard", ["3/3", "1", "x/2", "0/0"])
def test_no_such_shard(tmp_path, capsys, shard):
    """A shard that there is not is refused, with what would be right."""
    with pytest.raises(SystemExit):
        configured(tmp_path, "", "--shard", shard)
    assert "--shard" in capsys.readouterr().err


def test_election_by_flag(tmp_path):
    """``--leader-elect`` goes over the file; outside a pod a namespace has to be given."""
    text = FILE.replace("true", "false")
    assert configured(tmp_path, text).leader_election is None
    assert configured(tmp_path, text, "--leader-elect").leader_election.namespace == "team"
    with pytest.raises(SystemExit):
        configured(tmp_path, "", "--leader-elect")
