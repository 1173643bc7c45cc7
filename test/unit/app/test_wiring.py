"""A manager's settings from file, flags and namespace, and its controllers by its feature gates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime

import attrs
import pytest

from jobsetpy.api import keys
from jobsetpy.api.jobset import JobSet
from jobsetpy.app.config.settings import MANAGER, METRICS_CERT_DIR, Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.app.wiring import add_jobset_controllers, election_settings, metrics_tls
from jobsetpy.manager import Manager
from jobsetpy.serving import x509
from jobsetpy.serving.http import listening, serving
from jobsetpy.testing import RecordingClient, World
from support.jobsets import jobset_json
from support.managers import started
from support.patience import eventually

OFF = Configuration(feature_gates={"AllAlpha": False})


def made(world, configuration):
    """A manager with the JobSet controllers, and their names."""
    manager = Manager(RecordingClient(world, qps=0))
    add_jobset_controllers(manager, configuration)
    return manager, {runnable.name for runnable in manager._runnables}


async def test_gates_decide_which_controllers_run():
    """Restart in place and coscheduling have their own controllers; all others always run."""
    world = World()
    _, everything = made(world, None)
    _, less = made(world, OFF)
    assert {"jobset", "restart-in-place"} <= everything
    in_place = {"restart-in-place", "leaving-pods", "early-workers", "successor-pods"}
    assert everything - less == in_place | {"coscheduling"}


@pytest.mark.looptime
@pytest.mark.parametrize("configuration", [None, OFF], ids=["on", "off"])
async def test_gates_reach_the_rules(configuration):
    """The label that counts a Job's own restarts is set only with the gate."""
    world = World()
    world.register(JobSet)
    manager, _ = made(world, configuration)
    async with started(manager):
        world.create(JobSet, new_jobset("js"))
        await asyncio.sleep(5)
        labels = [job["metadata"]["labels"] for job in world.list("jobs")]
    assert len(labels) == 4
    assert all((keys.JOB_RESTART_ATTEMPT in each) == (configuration is None) for each in labels)


def new_jobset(name):
    """A JobSet to be created."""
    body = jobset_json(name=name)
    del body["metadata"]["uid"], body["metadata"]["resourceVersion"]
    return body


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


def test_election_is_off_outside_a_pod_unless_it_is_configured(read, tmp_path):
    """A manager on a developer's machine starts without one; an election has the context's namespace."""
    nowhere = tmp_path / "nothing"

    assert election_settings(read(MANAGER), namespace_file=nowhere) is None
    with pytest.raises(ConfigurationError, match="resourceNamespace"):
        election_settings(read(MANAGER, "--leader-elect"), namespace_file=nowhere)
    of_context = {"namespace_file": nowhere, "context": lambda: "team"}
    assert election_settings(read(MANAGER), **of_context) is None
    assert election_settings(read(MANAGER, "--leader-elect"), **of_context).namespace == "team"
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


async def test_metrics_are_served_with_a_made_certificate_until_there_are_files(read, tmp_path):
    """A configuration of the Go manager names no folder, and the default one is often missing."""
    certificates = metrics_tls(read(MANAGER, text=f"metrics: {{certDir: {tmp_path}/later}}"))
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

    async def shown(port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
        writer.close()
        return writer.get_extra_info("ssl_object").getpeercert(True)

    async with listening([], ("127.0.0.1", 0)) as server, serving(server, certificates):
        await eventually(lambda: server.serves, 20)
        made = await shown(server.port)
        assert list(certificates.problems()) == []
        now = datetime.now(UTC)
        pair = x509.new_serving(x509.new_authority(now), ["metrics"], now)
        (tmp_path / "later").mkdir()
        (tmp_path / "later/tls.key").write_bytes(pair.key)
        (tmp_path / "later/tls.crt").write_bytes(pair.certificate)
        assert await certificates.source.renew() is False
        stored = (await certificates.source.current()).pair

    assert ssl.DER_cert_to_PEM_cert(made).encode() != pair.certificate
    assert stored == pair
