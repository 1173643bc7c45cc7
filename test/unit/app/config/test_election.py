"""When a manager stands for election, and how its metrics are served: file, flags, place."""

import socket

import attrs
import pytest

from jobsetpy.app import main
from jobsetpy.app.config import flags as f
from jobsetpy.app.config.election import election_settings
from jobsetpy.app.config.settings import MANAGER, METRICS_CERT_DIR
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.app.wiring import metrics_tls

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


@pytest.fixture
def read(tmp_path):
    """Reads a configuration as the manager does: flags, and the text of a file."""

    def made(*flags, text=""):
        path = tmp_path / "c.yaml"
        path.write_text(HEAD + text)
        options = main._parser().parse_args(["manager", "--config", str(path), *flags])
        return f.read(options, MANAGER)

    return made


@pytest.fixture
def pod(tmp_path):
    """The file by which a pod knows its namespace."""
    path = tmp_path / "namespace"
    path.write_text("jobset-system\n")
    return path


def test_in_a_pod_there_is_an_election(read, pod):
    """With nothing said, the base's Lease in the pod's own namespace, with the base's times."""
    made = election_settings(read(), namespace_file=pod)

    assert {**attrs.asdict(made), "identity": ""} == {
        "namespace": "jobset-system",
        "name": "6d4f6a47.jobset.x-k8s.io",
        "identity": "",
        "lease_duration_s": 15.0,
        "renew_deadline_s": 10.0,
        "retry_period_s": 2.0,
    }
    assert made.identity == socket.gethostname()  # to which each elector adds a part of its own


def test_file_and_flags_decide(read, pod):
    """The file sets times and names; the flag switches it off, and wins."""
    text = (
        "leaderElection: {leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 5s,"
        " resourceName: n, resourceNamespace: ns, leaderElect: true}"
    )
    made = election_settings(read(text=text), namespace_file=pod)

    assert (made.namespace, made.name, made.retry_period_s) == ("ns", "n", 5.0)
    assert election_settings(read("--leader-elect=false", text=text)) is None


def test_outside_a_pod_there_is_none_unless_it_is_asked_for(read, tmp_path):
    """A manager at a developer's machine works at once; asked for an election, it needs a place."""
    nowhere = tmp_path / "nothing"

    assert election_settings(read(), namespace_file=nowhere) is None
    with pytest.raises(ConfigurationError, match="resourceNamespace"):
        election_settings(read("--leader-elect"), namespace_file=nowhere)
    text = "leaderElection: {leaderElect: true}"
    with pytest.raises(ConfigurationError, match="resourceNamespace"):
        election_settings(read(text=text), namespace_file=nowhere)
    text = "leaderElection: {resourceNamespace: ns}"
    assert election_settings(read(text=text), namespace_file=nowhere).namespace == "ns"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("leaderElection: {resourceLock: configmaps}", "resourceLock"),
        ("leaderElection: {leaseDuration: 10s}", "leaseDuration > renewDeadline"),
        ("leaderElection: {retryPeriod: 9s}", "retryPeriod"),
    ],
)
def test_elections_that_are_not_safe_are_refused(read, pod, text, problem):
    """What cannot work ends the start, with the field's name."""
    with pytest.raises(ConfigurationError, match=problem):
        election_settings(read(text=text), namespace_file=pod)


def test_metrics_are_protected_unless_that_is_switched_off(read):
    """TLS with a certificate of its own by default; none where there is nothing to protect."""
    made = metrics_tls(read())

    assert made.policy.new_context().minimum_version.name == "TLSv1_2"
    assert metrics_tls(read("--metrics-secure=false")) is None
    assert metrics_tls(read("--metrics-bind-address=0")) is None
    made = metrics_tls(read(text="tls: {minVersion: VersionTLS13}"))
    assert made.policy.new_context().minimum_version.name == "TLSv1_3"


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("metrics: {certDir: /x}", "/x"),
        ("internalCertManagement: {enable: false}", METRICS_CERT_DIR),
    ],
)
def test_metrics_certificates_from_files(read, text, folder):
    """A folder that is named is used; without internal certificates, the base's folder."""
    made = metrics_tls(read(text=text))

    assert str(made.source.folder) == folder
