"""Flags, which override the configuration file, and the settings made from both."""

import sys
from pathlib import Path

import pytest
import structlog

from jobsetpy.admission import WebhookSettings
from jobsetpy.app import wiring
from jobsetpy.app.config import configuration as file
from jobsetpy.app.config import flags as f
from jobsetpy.app.config.settings import MANAGER, RUN, Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.reconcilers.rules.injected_containers import ContainerDefaults
from jobsetpy.reconcilers.startup_groups.injection import GroupBarrier
from jobsetpy.serving.tls import TlsPolicy
from jobsetpy.testing import RecordingClient, World
from support.commands import run

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


@pytest.mark.parametrize(
    ("flag", "text", "path", "default", "in_file", "by_flag"),
    [
        ("--metrics-bind-address=:1", "metrics: {bindAddress: ':2'}", "metrics.bindAddress", ":8443", ":2", ":1"),
        ("--metrics-bind-address=0", "metrics: {bindAddress: ':2'}", "metrics.bindAddress", ":8443", ":2", "0"),
        ("-health-probe-bind-address=:1", "health: {healthProbeBindAddress: ':2'}", "health.healthProbeBindAddress", ":8081", ":2", ":1"),
        ("--leader-elect", "leaderElection: {leaderElect: false}", "leaderElection.leaderElect", True, False, True),
        ("--leader-elect=false", "leaderElection: {leaderElect: true}", "leaderElection.leaderElect", True, True, False),
        ("--kube-api-qps=0", "clientConnection: {qps: 7}", "clientConnection.qps", 500.0, 7.0, 0.0),
        ("-kube-api-burst=9", "clientConnection: {burst: 7}", "clientConnection.burst", 500, 7, 9),
        ("--in-place-restart-stalled-after=1m30s", "inPlaceRestart: {stalledAfter: 2m}", "inPlaceRestart.stalledAfter", 60.0, 120.0, 90.0),
    ],
)  # fmt: skip
def test_only_a_given_flag_overrides_the_file(read, flag, text, path, default, in_file, by_flag):
    """The file overrides the default, and a flag overrides both, but not by its own default."""

    def value(*flags, text=None):
        return read(MANAGER, *flags, text=text)[path]

    assert value() == default
    assert value(text=text) == in_file
    assert value(flag) == by_flag
    assert value(flag, text=text) == by_flag


@pytest.mark.parametrize(
    "flag",
    [
        "--coscheduling-backend=volcano",
        "--coscheduling-scheduler-name=No_Name",
        "--in-place-restart-stalled-after=0s",
        "--in-place-restart-stalled-after=soon",
    ],
)
def test_the_parser_refuses_invalid_values(parse, flag, capsys):
    """The usage error names the flag."""
    with pytest.raises(SystemExit):
        parse(MANAGER, flag)
    assert flag.partition("=")[0] in capsys.readouterr().err


def test_feature_gates_of_flag_and_file_are_merged(read):
    """The flag overrides the file for gates that it names; other gates are on."""
    text = "featureGates: {RestartJob: false, ElasticJobSet: false}"
    flag = "--feature-gates=RestartJob=true, InPlaceRestart=F"

    assert read(MANAGER, flag, text=text).features == Features(
        restart_job=True, elastic_jobset=False, in_place_restart=False
    )
    assert read(MANAGER, "--feature-gates=").features == Features()
    everything_off = Features(
        restart_job=False, elastic_jobset=False, in_place_restart=True, coscheduling=False
    )
    gates = {"AllAlpha": False, "InPlaceRestart": True, "AllBeta": True, "TLSOptions": True}
    assert Features.from_gates(gates) == everything_off


@pytest.mark.parametrize(
    "text", ["Foo=true", "TLSOptions=false", "RestartJob", "RestartJob=on", "=true"]
)
def test_bad_feature_gates(text):
    """Unknown gates, locked gates and invalid forms are refused."""
    with pytest.raises(ValueError):
        f.parse_gates(text)


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ([], ("auto", "info")),
        (["--log-format=json", "--log-level=error", "--zap-log-level=debug"], ("json", "error")),
        (["--zap-log-level=2", "--zap-encoder=console"], ("console", "debug")),
        (["-zap-log-level=error", "-zap-devel", "-zap-time-encoding=iso8601"], ("auto", "error")),
    ],
)
def test_logging_flags(parse, flags, wanted):
    """Flags of JobSet's Go manager keep their meaning; the project's own flags override them."""
    assert f.log_options(parse(MANAGER, *flags)) == wanted


def test_run_serves_nothing_by_default(read):
    """``run`` has the same flags, but no servers unless they are configured."""
    made = wiring.manager_settings(read(RUN, "m:f"))
    assert (made.metrics_bind_address, made.health_probe_bind_address) == ("0", "0")
    assert (made.metrics_tls, made.leader_election) == (None, None)
    given = read(RUN, "m:f", "--metrics-bind-address=:1", "--kube-api-qps=3")
    assert (given["metrics.bindAddress"], given["clientConnection.qps"]) == (":1", 3.0)
    assert wiring.manager_settings(given).metrics_tls is None


@pytest.mark.parametrize(
    ("text", "flags", "wanted"),
    [
        ("", [], {"bind_address": ":9443", "service_name": "jobset-webhook-service",
                  "secret_name": "jobset-webhook-server-cert", "tls": TlsPolicy()}),
        ("webhook: {port: 7, host: '::1', certDir: /x}", [], {"bind_address": "[::1]:7"}),
        ("webhook: {port: 7, host: '::1'}", ["--webhook-bind-address=:8"], {"bind_address": ":8"}),
        ("internalCertManagement: {enable: false}", [],
         {"certificate_dir": Path("/tmp/k8s-webhook-server/serving-certs")}),
        ("internalCertManagement: {enable: false}\nwebhook: {certDir: /x}", [],
         {"certificate_dir": Path("/x")}),
        ("internalCertManagement: {enable: false}\nwebhook: {certDir: /x}",
         ["--webhook-cert-dir=/y"], {"certificate_dir": Path("/y")}),
        ("tls: {minVersion: VersionTLS13}", [], {"tls": TlsPolicy(tls13_only=True)}),
        ("tls: {cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]}",
         [], {"tls": TlsPolicy(ciphers=("ECDHE-RSA-AES128-GCM-SHA256",))}),
        ("featureGates: {ElasticJobSet: false}", [], {"features": Features(elastic_jobset=False)}),
        ("", [], {"agent_image": ""}),
        ("inPlaceRestart: {agentImage: a}", [], {"agent_image": "a"}),
        ("inPlaceRestart: {agentImage: a}", ["--agent-image=b"], {"agent_image": "b"}),
        ("", [], {"drain_s": 0.0}),  # this is no pod
        ("", ["--webhook-shutdown-delay=1m30s"], {"drain_s": 90.0}),
        ("", ["--webhook-shutdown-delay=0"], {"drain_s": 0.0}),
        ("", [], {"barrier": GroupBarrier(shell_image="bash"), "injected": ContainerDefaults()}),
        ("groupScheduling: {image: s, agentImage: a}", ["--group-scheduling-agent-image=b"],
         {"barrier": GroupBarrier(shell_image="s", agent_image="b")}),
        ("injectedContainers: {limits: {cpu: 1}, pullSecret: p}", ["--injected-requests=cpu=2"],
         {"injected": ContainerDefaults(requests={"cpu": "2"}, limits={"cpu": "1"}, pull_secret="p")}),
    ],
)  # fmt: skip
def test_webhook_settings(read, text, flags, wanted):
    """The webhook server has the settings of file and flags."""
    made = wiring.webhook_settings(read(MANAGER, *flags, text=text))

    assert {key: getattr(made, key) for key in wanted} == wanted
    assert (made.certificate_dir is None) == ("enable: false" not in text)


def test_webhooks_drain_in_a_pod_by_default(read, tmp_path, monkeypatch):
    """Clients of a Service learn with a delay that a pod ends."""
    monkeypatch.setattr(wiring, "NAMESPACE_FILE", tmp_path)
    for flags, wanted in ([], 5.0), (["--webhook-shutdown-delay=2s"], 2.0):
        made = wiring.webhook_settings(read(MANAGER, *flags, text=""))
        assert made.drain_s == wanted


@pytest.mark.parametrize(
    ("text", "flags", "webhooks", "wanted"),
    [
        ("webhook: {port: 1}\ntls: {}\ninternalCertManagement: {}", [], False,
         ["webhook", "internalCertManagement"]),
        ("webhook: {port: 1, certDir: /x}\ntls: {}", [], True, ["webhook.certDir"]),
        ("webhook: {certDir: /x}\ninternalCertManagement: {enable: false}", [], True, []),
        ("metrics: {certDir: /x}", [], True, []),
        ("", [], False, []),
    ],
)  # fmt: skip
def test_fields_without_effect_are_logged(read, text, flags, webhooks, wanted):
    """A warning names each field of the file that is read but has no effect."""
    served = ["--webhooks"] if webhooks else []
    configuration = read(MANAGER, *flags, *served, text=text)

    assert file.without_effect(configuration) == wanted
    with structlog.testing.capture_logs() as lines:
        file.log(configuration)
    assert lines[0]["log_level"] == "info"
    assert lines[0]["feature_gates"] == {}
    assert [(line["log_level"], line["field"]) for line in lines[1:]] == [
        ("warning", path) for path in wanted
    ]


def test_every_known_cipher_suite_can_be_used():
    """A name that the file accepts never ends the start, if this OpenSSL has the suite."""
    from jobsetpy.app.config import tls_names as names

    ciphers = names.openssl_ciphers(list(names._OPENSSL))
    assert {c["name"] for c in TlsPolicy(ciphers=ciphers).new_context().get_ciphers()} >= {
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    }
    with pytest.raises(ValueError, match="none of the cipher suites"):
        TlsPolicy(ciphers=("NONE",)).new_context()


def test_the_process_exits_with_1_and_reports_every_problem(tmp_path):
    """An invalid file ends the manager before it does anything."""
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "featureGates: {A: true, B: true}")
    done = run(sys.executable, "-m", "jobsetpy.app.main", "manager", "--config", path)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "jobsetpy manager: featureGates: unrecognized feature gate: A",
        "jobsetpy manager: featureGates: unrecognized feature gate: B",
    ]


def test_the_default_address_of_webhooks_is_that_of_their_settings():
    """The file has a port and a host, the settings class one address."""
    made = wiring.webhook_settings(Configuration())

    assert made.bind_address == WebhookSettings().bind_address


def test_defaults_pass_their_own_checks():
    """The defaults are a valid configuration."""
    assert file.validate(Configuration()) == []


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--shards=2", "--leader-elect=false"], ["--shards", "--leader-elect"]),
        (["--shards=2"], ["--shards", "leaderElection.resourceNamespace"]),
        (["--shards=0"], ["must be from 1 to 64"]),
        (["--shards=65"], ["must be from 1 to 64"]),
    ],
)
def test_invalid_shards_are_refused(read, flags, named):
    """The error names both settings that contradict each other."""
    with pytest.raises(ConfigurationError) as refused:
        wiring.manager_settings(read(MANAGER, *flags))
    assert all(each in str(refused.value) for each in named)


async def test_shards_divide_the_limit_of_agent_events(read, monkeypatch):
    """The limit is for the whole cluster; one shard means no sharding."""
    given = []
    monkeypatch.setattr(
        "jobsetpy.reconcilers.jobs.reconciler.setup", lambda _, made: given.append(made)
    )
    for count in (1, 4):
        configuration = read(MANAGER, f"--shards={count}")
        wiring.add_jobset_controllers(Manager(RecordingClient(World())), configuration)
    assert [made.agent_events_per_s for made in given] == [5000, 1250]
    assert wiring.shards(read(MANAGER, "--shards=1"), elected=False) is None
