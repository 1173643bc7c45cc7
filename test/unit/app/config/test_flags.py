"""Flags over the configuration file, and what a manager makes of both."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from jobsetpy.admission import WebhookSettings
from jobsetpy.app import main, wiring
from jobsetpy.app.config import configuration as file
from jobsetpy.app.config import flags as f
from jobsetpy.app.config.settings import MANAGER, RUN, Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.rules.features import Features
from jobsetpy.serving.tls import TlsPolicy
from jobsetpy.testing import RecordingClient, World
from support import patience

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


@pytest.fixture
def options(tmp_path):
    """Parses manager flags, with a configuration file if there is a text for one."""

    def parse(*flags, text=None):
        if text is not None:
            path = tmp_path / "configuration.yaml"
            path.write_text(HEAD + text)
            flags = ("--config", str(path), *flags)
        return main._parser().parse_args(["manager", *f.with_double_dashes(list(flags))])

    return parse


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
    ],
)  # fmt: skip
def test_only_a_given_flag_overrides_the_file(options, flag, text, path, default, in_file, by_flag):
    """Default, file, flag: the later wins, and a flag's own default never does."""

    def value(*flags, text=None):
        return f.read(options(*flags, text=text), MANAGER)[path]

    assert value() == default
    assert value(text=text) == in_file
    assert value(flag) == by_flag
    assert value(flag, text=text) == by_flag


def test_feature_gates_of_flag_and_file_are_joined(options):
    """Each gate is taken from the flag if it names it, else from the file, else it is on."""
    text = "featureGates: {RestartJob: false, ElasticJobSet: false}"
    parsed = options("--feature-gates=RestartJob=true, InPlaceRestart=F", text=text)

    assert f.read(parsed, MANAGER).features == Features(
        restart_job=True, elastic_jobset=False, in_place_restart=False
    )
    assert f.read(options("--feature-gates="), MANAGER).features == Features()
    everything_off = Features(
        restart_job=False, elastic_jobset=False, in_place_restart=True, coscheduling=False
    )
    gates = {"AllAlpha": False, "InPlaceRestart": True, "AllBeta": True, "TLSOptions": True}
    assert Features.from_gates(gates) == everything_off


@pytest.mark.parametrize(
    "text", ["Foo=true", "TLSOptions=false", "RestartJob", "RestartJob=on", "=true"]
)
def test_bad_feature_gates(text):
    """Unknown and locked gates, and other forms, are refused."""
    with pytest.raises(argparse.ArgumentTypeError):
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
def test_logging_flags(options, flags, wanted):
    """Flags of today's manifests are taken in their sense; our own win over them."""
    assert f.log_options(options(*flags)) == wanted


def test_a_controller_of_ones_own_serves_nothing_unasked():
    """``run`` has the same flags without a file, and no servers by default."""
    parse = main._parser().parse_args
    quiet = f.read(parse(["run", "m:f"]), RUN)
    made = wiring.manager_settings(quiet)
    assert (made.metrics_bind_address, made.health_probe_bind_address) == ("0", "0")
    assert (made.metrics_tls, made.leader_election) == (None, None)
    asked = parse(["run", "m:f", "--metrics-bind-address=:1", "--kube-api-qps=3"])
    asked_for = f.read(asked, RUN)
    assert (asked_for["metrics.bindAddress"], asked_for["clientConnection.qps"]) == (":1", 3.0)
    assert wiring.manager_settings(asked_for).metrics_tls is None


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
        ("", [], {"group_image": "bash", "group_agent_image": ""}),
        ("groupScheduling: {image: s, agentImage: a}", ["--group-scheduling-agent-image=b"],
         {"group_image": "s", "group_agent_image": "b"}),
    ],
)  # fmt: skip
def test_webhook_settings(options, text, flags, wanted):
    """The webhook server is set up as file and flags say."""
    made = wiring.webhook_settings(f.read(options(*flags, text=text), MANAGER))

    assert {key: getattr(made, key) for key in wanted} == wanted
    assert (made.certificate_dir is None) == ("enable: false" not in text)


def test_pods_serve_webhooks_on_for_a_while(options, tmp_path, monkeypatch):
    """Unless told otherwise: those who call a Service do not hear at once that a pod ends."""
    monkeypatch.setattr(wiring, "NAMESPACE_FILE", tmp_path)
    for flags, wanted in ([], 5.0), (["--webhook-shutdown-delay=2s"], 2.0):
        made = wiring.webhook_settings(f.read(options(*flags, text=""), MANAGER))
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
def test_what_has_no_effect_is_named(options, text, flags, webhooks, wanted):
    """Nobody relies unknowingly on a field that is read and not acted on."""
    served = ["--webhooks"] if webhooks else []
    configuration = f.read(options(*flags, *served, text=text), MANAGER)

    assert file.without_effect(configuration) == wanted
    with structlog.testing.capture_logs() as lines:
        file.log(configuration)
    assert lines[0]["log_level"] == "info"
    assert lines[0]["feature_gates"] == {}
    assert [(line["log_level"], line["field"]) for line in lines[1:]] == [
        ("warning", path) for path in wanted
    ]


def test_every_known_cipher_suite_can_be_set_up():
    """A name that the file takes never ends the start, as far as this OpenSSL has the suite."""
    from jobsetpy.app.config import tls_names as names

    ciphers = names.openssl_ciphers(list(names._OPENSSL))
    assert {c["name"] for c in TlsPolicy(ciphers=ciphers).new_context().get_ciphers()} >= {
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    }
    with pytest.raises(ValueError, match="none of the cipher suites"):
        TlsPolicy(ciphers=("NONE",)).new_context()


def test_the_process_ends_with_one_and_every_problem(tmp_path):
    """A file that cannot be used ends the manager before it does anything."""
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "featureGates: {A: true, B: true}")
    done = subprocess.run(
        [sys.executable, "-m", "jobsetpy.app.main", "manager", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=patience.scaled(30),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "jobsetpy manager: featureGates: unrecognized feature gate: A",
        "jobsetpy manager: featureGates: unrecognized feature gate: B",
    ]


def test_the_webhooks_port_is_that_of_their_settings():
    """The file has a port and a host, the Settings class an address of both."""
    made = wiring.webhook_settings(Configuration())

    assert made.bind_address == WebhookSettings().bind_address


def test_defaults_pass_their_own_checks():
    """The effective defaults are valid."""
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
def test_shards_that_cannot_be_are_refused(options, flags, named):
    """Both of what does not go together is named."""
    with pytest.raises(ConfigurationError) as refused:
        wiring.manager_settings(f.read(options(*flags), MANAGER))
    assert all(each in str(refused.value) for each in named)


async def test_shards_divide_what_agents_receive(options, monkeypatch):
    """The limit is of the whole cluster; one shard is none."""
    given = []
    monkeypatch.setattr(
        "jobsetpy.reconcilers.jobs.reconciler.setup", lambda _, made: given.append(made)
    )
    for count in (1, 4):
        configuration = f.read(options(f"--shards={count}"), MANAGER)
        wiring.add_jobset_controllers(Manager(RecordingClient(World())), configuration)
    assert [made.agent_events_per_s for made in given] == [5000, 1250]
    assert wiring.shards(f.read(options("--shards=1"), MANAGER), elected=False) is None
