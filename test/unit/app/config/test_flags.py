"""Flags, which override the configuration file, and the settings made from both."""

import sys

import attrs
import pytest
import structlog

from jobsetpy.app import wiring
from jobsetpy.app.config import configuration as file
from jobsetpy.app.config import flags as f
from jobsetpy.app.config.settings import MANAGER, Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import Manager
from jobsetpy.reconcilers.rules.features import Features, parse_gates
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
        "--webhook-shutdown-delay=soon",
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
    off = dict.fromkeys((each.name for each in attrs.fields(Features)), False)
    everything_off = Features(**{**off, "in_place_restart": True})
    gates = {"AllAlpha": False, "InPlaceRestart": True, "AllBeta": True, "TLSOptions": True}
    assert Features.from_gates(gates) == everything_off


@pytest.mark.parametrize(
    "text", ["Foo=true", "TLSOptions=false", "RestartJob", "RestartJob=on", "=true"]
)
def test_bad_feature_gates(text):
    """Unknown gates, locked gates and invalid forms are refused."""
    with pytest.raises(ValueError):
        parse_gates(text)


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
        "jobsetpy.reconcilers.jobs.reconciler.setup", lambda _, made, __: given.append(made)
    )
    for count in (1, 4):
        configuration = read(MANAGER, f"--shards={count}")
        wiring.add_jobset_controllers(Manager(RecordingClient(World())), configuration)
    assert [made.agent_events_per_s for made in given] == [5000, 1250]
    assert wiring.shards(read(MANAGER, "--shards=1"), elected=False) is None
