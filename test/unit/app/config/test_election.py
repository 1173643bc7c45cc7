"""Leader election and TLS of metrics, as configured by file, flags and namespace."""

import socket

import attrs
import pytest

from jobsetpy.app.config.election import election_settings
from jobsetpy.app.config.settings import MANAGER, METRICS_CERT_DIR
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.app.wiring import metrics_tls


@pytest.fixture
def pod(tmp_path):
    """A file with the namespace of a pod."""
    path = tmp_path / "namespace"
    path.write_text("jobset-system\n")
    return path


def test_election_is_on_by_default_in_a_pod(read, pod):
    """It uses the documented default Lease and times, in the pod's namespace."""
    made = election_settings(read(MANAGER), namespace_file=pod)

    assert {**attrs.asdict(made), "identity": ""} == {
        "namespace": "jobset-system",
        "name": "6d4f6a47.jobset.x-k8s.io",
        "identity": "",
        "lease_duration_s": 15.0,
        "renew_deadline_s": 10.0,
        "retry_period_s": 2.0,
    }
    assert made.identity == socket.gethostname()  # each elector appends a unique part


def test_a_flag_overrides_the_elections_file(read, pod):
    """The file sets times and names; the flag switches the election off."""
    text = (
        "leaderElection: {leaseDuration: 60s, renewDeadline: 40s, retryPeriod: 5s,"
        " resourceName: n, resourceNamespace: ns, leaderElect: true}"
    )
    made = election_settings(read(MANAGER, text=text), namespace_file=pod)

    assert (made.namespace, made.name, made.retry_period_s) == ("ns", "n", 5.0)
    assert election_settings(read(MANAGER, "--leader-elect=false", text=text)) is None


def test_election_is_off_outside_a_pod_unless_it_is_configured(read, tmp_path):
    """A manager on a developer's machine starts without one; an election needs a namespace there."""
    nowhere = tmp_path / "nothing"

    assert election_settings(read(MANAGER), namespace_file=nowhere) is None
    with pytest.raises(ConfigurationError, match="resourceNamespace"):
        election_settings(read(MANAGER, "--leader-elect"), namespace_file=nowhere)
    text = "leaderElection: {leaderElect: true}"
    with pytest.raises(ConfigurationError, match="resourceNamespace"):
        election_settings(read(MANAGER, text=text), namespace_file=nowhere)
    text = "leaderElection: {resourceNamespace: ns}"
    assert election_settings(read(MANAGER, text=text), namespace_file=nowhere).namespace == "ns"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("leaderElection: {resourceLock: configmaps}", "resourceLock"),
        ("leaderElection: {leaseDuration: 10s}", "leaseDuration > renewDeadline"),
        ("leaderElection: {retryPeriod: 9s}", "retryPeriod"),
    ],
)
def test_unsafe_elections_are_refused(read, pod, text, problem):
    """The error names the field."""
    with pytest.raises(ConfigurationError, match=problem):
        election_settings(read(MANAGER, text=text), namespace_file=pod)


def test_metrics_use_tls_unless_it_is_switched_off(read):
    """The certificate is self-made by default; without an endpoint there is none."""
    made = metrics_tls(read(MANAGER))

    assert made.policy.new_context().minimum_version.name == "TLSv1_2"
    assert metrics_tls(read(MANAGER, "--metrics-secure=false")) is None
    assert metrics_tls(read(MANAGER, "--metrics-bind-address=0")) is None
    made = metrics_tls(read(MANAGER, text="tls: {minVersion: VersionTLS13}"))
    assert made.policy.new_context().minimum_version.name == "TLSv1_3"


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("metrics: {certDir: /x}", "/x"),
        ("internalCertManagement: {enable: false}", METRICS_CERT_DIR),
    ],
)
def test_metrics_certificates_from_files(read, text, folder):
    """The configured folder is used; without internal certificates, the default folder."""
    made = metrics_tls(read(MANAGER, text=text))

    assert str(made.source.folder) == folder
