"""The configuration file: defaults, strict decoding, checks."""

import pytest

from jobsetpy.api.durations import parse_duration
from jobsetpy.app.config import configuration as c
from jobsetpy.app.config import settings
from jobsetpy.app.config.value_types import ConfigurationError

HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"


def problems_of(text):
    with pytest.raises(ConfigurationError) as caught:
        configuration = c.parse(text)
        raise ConfigurationError(c.validate(configuration))
    return caught.value.problems


def test_a_file_without_fields_has_all_defaults():
    """The defaults themselves are compared with the page of all fields."""
    configuration = c.parse(HEAD)

    assert configuration == settings.Configuration()
    assert configuration.given == frozenset()
    assert configuration.feature_gates == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("foo: 1", 'unknown field "foo"'),
        ("given: []", 'unknown field "given"'),
        ("webhook: {prot: 1, hots: a}", 'unknown field "webhook.hots", unknown field "webhook.prot"'),
        ("webhook: {port: '1'}", "webhook.port: expected an integer, got '1'"),
        ("webhook: {port: true}", "webhook.port: expected an integer, got True"),
        ("webhook: {certDir: 1}", "webhook.certDir: expected a string, got 1"),
        ("webhook: x", "webhook: expected a mapping, got 'x'"),
        (
            "leaderElection: {leaderElect: 'no'}",
            "leaderElection.leaderElect: expected true or false, got 'no'",
        ),
        (
            "leaderElection: {leaseDuration: 15}",
            "leaderElection.leaseDuration: expected a duration such as 15s, got 15",
        ),
        (
            "leaderElection: {retryPeriod: -2s}",
            "leaderElection.retryPeriod: '-2s' is no duration such as 15s or 1m30s",
        ),
        ("clientConnection: {qps: .nan}", "clientConnection.qps: expected a number, got nan"),
        ("clientConnection: {qps: fast}", "clientConnection.qps: expected a number, got 'fast'"),
        ("tls: {cipherSuites: [a, 1]}", "tls.cipherSuites[1]: expected a string, got 1"),
        ("tls: {cipherSuites: a}", "tls.cipherSuites: expected a list of strings, got 'a'"),
        ("featureGates: []", "featureGates: expected a mapping, got []"),
        ("featureGates: {1: true}", "featureGates[1]: expected a string, got 1"),
        ("1: 2", 'unknown field "1"'),
        ("featureGates: {RestartJob: 1}", "featureGates['RestartJob']: expected true or false, got 1"),
        ("webhook: {}\nwebhook: {}", 'key "webhook" already set in map (line 4)'),
        ("webhook: {port: 1, port: 2}", 'key "port" already set in map (line 3)'),
    ],
)  # fmt: skip
def test_decoding_is_strict(text, problem):
    """The problem names the path and the value."""
    assert problems_of(HEAD + text) == [problem]


def test_all_decoding_problems_are_reported_together():
    """One error does not hide the others."""
    assert len(problems_of(HEAD + "webhook: {port: a}\nmetrics: {x: 1}\ny: 2")) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a",
        "kind: Configuration",
        "apiVersion: config.jobset.x-k8s.io/v2\nkind: Configuration",
        "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Config",
        "a: [",
        "a: *nothing",
        "[" * 20_000,
    ],
)
def test_other_documents_are_refused(text):
    """Invalid YAML, other types and other kinds are one problem each, and no other exception."""
    assert len(problems_of(text)) == 1


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("internalCertManagement: {webhookSecretName: 'A b'}", "internalCertManagement.webhookSecretName"),
        ("internalCertManagement: {webhookServiceName: 0-invalid}", "internalCertManagement.webhookServiceName"),
        ("tls: {minVersion: VersionTLS10}", "tls"),
        ("tls: {minVersion: VersionTLS11}", "tls"),
        ("tls: {minVersion: TLS1.3}", "tls"),
        ("tls: {cipherSuites: [TLS_NONE]}", "tls"),
        ("tls: {minVersion: x, cipherSuites: [y]}", "tls"),
        (
            "tls: {minVersion: VersionTLS13, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}",
            "tls.cipherSuites",
        ),
        ("featureGates: {Foo: true}", "featureGates"),
        ("featureGates: {TLSOptions: false}", "featureGates"),
        ("inPlaceRestart: {stalledAfter: 0s}", "inPlaceRestart.stalledAfter"),
    ],
)  # fmt: skip
def test_values_are_checked(text, field):
    """An invalid value is one problem of its field."""
    (problem,) = problems_of(HEAD + text)
    assert problem.startswith(f"{field}: ")


@pytest.mark.parametrize(
    "text",
    [
        "internalCertManagement: {enable: false, webhookServiceName: 0-invalid}",
        "tls: {minVersion: VersionTLS13}",
        "tls: {minVersion: VersionTLS13, cipherSuites: []}",
        "tls: {minVersion: VersionTLS12, cipherSuites: [TLS_AES_128_GCM_SHA256]}",
        "tls: {cipherSuites: [TLS_RSA_WITH_RC4_128_SHA, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305]}",
        "featureGates: {TLSOptions: true, AllBeta: true, AllAlpha: false, InPlaceRestart: true}",
    ],
)
def test_values_of_the_go_controller_are_accepted(text):
    """Unchecked names of a disabled part, TLS 1.3 names, weak but known suites, meta gates."""
    assert c.validate(c.parse(HEAD + text)) == []


def test_a_file_is_read(tmp_path):
    """An invalid or missing file is an error with every problem."""
    file = tmp_path / "c.yaml"
    file.write_text(HEAD + "webhook: {port: 1}")
    assert c.load(file)["webhook.port"] == 1

    file.write_text(HEAD + "featureGates: {A: true, B: true}\ntls: {minVersion: x}")
    with pytest.raises(ConfigurationError) as caught:
        c.load(file)
    assert len(caught.value.problems) == 3
    with pytest.raises(ConfigurationError, match="cannot read"):
        c.load(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("15s", 15),
        ("1h2m3s", 3723),
        ("1.5s", 1.5),
        (".5m", 30),
        ("10us", 1e-5),
    ],
)
def test_durations(text, seconds):
    """Durations have Go's forms."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "15", "s", "1d", "1s2", "-1s", "1 s", "1s "])
def test_invalid_durations_are_refused(text):
    """A duration needs a unit and no sign."""
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)
