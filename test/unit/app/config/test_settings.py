"""Each field of the configuration reaches the part where it has its effect, and is documented.

The effects have their own tests: TLS handshakes, elections, rate limits, webhooks.
"""

import argparse
import functools
import re
from pathlib import Path

import attrs
import pytest

from jobsetpy.app import main, wiring
from jobsetpy.app.config import configuration as file
from jobsetpy.app.config import flags as f
from jobsetpy.app.config.settings import (
    BY_PATH,
    COSCHEDULER,
    MANAGER,
    SETTINGS,
    Configuration,
)
from jobsetpy.manager import ManagerSettings
from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
from jobsetpy.reconcilers.jobs.reconciler import JobsSettings
from jobsetpy.reconcilers.lost_nodes.reconciler import LostNodesSettings
from jobsetpy.reconcilers.restart_in_place.reconciler import RestartInPlaceSettings
from jobsetpy.reconcilers.rules.backoff import RestartBackoff
from jobsetpy.reconcilers.rules.features import gate_names

PAGE = Path(__file__).resolve().parents[4] / "docs/how-to/configure.md"
HEAD = "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\n"

VALUES = {
    "webhook.port": "9444",
    "webhook.host": "127.0.0.1",
    "webhook.certDir": "/certs",
    "leaderElection.leaderElect": "false",
    "leaderElection.leaseDuration": "60s",
    "leaderElection.renewDeadline": "12s",
    "leaderElection.retryPeriod": "1s",
    "leaderElection.resourceName": "n",
    "leaderElection.resourceNamespace": "ns",
    "shards.count": "3",
    "metrics.bindAddress": '":9999"',
    "metrics.certDir": "/certs",
    "observability.labels": "[queue]",
    "health.healthProbeBindAddress": '":9998"',
    "health.readinessEndpointName": "/ready",
    "health.livenessEndpointName": "/live",
    "tls.minVersion": "VersionTLS13",
    "tls.cipherSuites": "[TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]",
    "internalCertManagement.enable": "false",
    "internalCertManagement.webhookServiceName": "s",
    "internalCertManagement.webhookSecretName": "s",
    "internalCertManagement.mutatingConfigurationName": "m",
    "internalCertManagement.validatingConfigurationName": "v",
    "clientConnection.qps": "7.5",
    "clientConnection.burst": "9",
    "inPlaceRestart.agentImage": "a",
    "inPlaceRestart.defaults": "{lost-node-deadline: 60s, enforced: {restart-backoff: 1s}}",
    "inPlaceRestart.stalledAfter": "2m",
    "inPlaceRestart.replacePods": "false",
    "inPlaceRestart.agentEventsPerSecond": "9000",
    "restarts.backoff": "2s",
    "restarts.recreationBackoff": "2s",
    "restarts.maxBackoff": "3m",
    "restarts.backoffResetAfter": "4m",
    "lostNodes.deadline": "40s",
    "groupScheduling.image": "i",
    "groupScheduling.agentImage": "a",
    "groupScheduling.manageRbac": "true",
    "injectedContainers.requests": "{cpu: 50m}",
    "injectedContainers.limits": "{cpu: 200m, memory: 128Mi}",
    "injectedContainers.pullSecret": "s",
    "coscheduling.backend": "podgroup",
    "coscheduling.schedulerName": "s",
    "coscheduling.memberResource": "true",
    "coscheduler.bindAddress": '":9997"',
    "coscheduler.certDir": "/certs",
    "coscheduler.clientNames": "[a]",
    "coscheduler.serviceName": "s",
    "coscheduler.extraDnsNames": "[d.example.com]",
    "coscheduler.permitTimeout": "20s",
    "coscheduler.schedulerName": "s",
    "coscheduler.memberResource": "true",
}
NEEDS = {
    "webhook.certDir": {"internalCertManagement.enable": "false"},
    "metrics.certDir": {"internalCertManagement.enable": "false"},
    "coscheduling.schedulerName": {"coscheduling.backend": "coscheduler"},
    "coscheduling.memberResource": {"coscheduling.backend": "coscheduler"},
}
"""Fields that have an effect only together with others."""
CHECKED_ONLY = {"leaderElection.resourceLock"}
"""Fields that have only one valid value."""


def leaves():
    """Path in the file and default of every field with a value."""
    defaults = Configuration()
    return [(each.path, defaults[each.path]) for each in SETTINGS if each.section]


parser = functools.cache(main._parser)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for configuration files."""
    return tmp_path_factory.mktemp("settings")


@functools.cache
def usual(folder, *values):
    """Settings of all parts with these fields, which several fields have in common."""
    return reached(folder, dict(values))


def reached(tmp_path, values):
    """Settings of all parts of a manager and of a coscheduler."""
    sections = {}
    for path, value in values.items():
        section, field = path.split(".")
        sections.setdefault(section, []).append(f"{field}: {value}")
    text = HEAD + "".join(f"{name}: {{{', '.join(found)}}}\n" for name, found in sections.items())
    (tmp_path / "c.yaml").write_text(text)
    (tmp_path / "namespace").write_text("here")

    def read(command):
        options = parser().parse_args([command.name, "--config", str(tmp_path / "c.yaml")])
        return f.read(options, command)

    made = read(MANAGER)
    tls = wiring.metrics_tls(made)
    return {
        "client": made.section("clientConnection"),
        "manager": attrs.asdict(made.make(ManagerSettings)),
        "shards": wiring.shards(made, elected=True),
        "election": wiring.election_settings(made, namespace_file=tmp_path / "namespace"),
        "jobs": made.make(JobsSettings, features=made.features),
        "epochs": made.make(RestartInPlaceSettings),
        "lost nodes": made.make(LostNodesSettings),
        "successors": made["inPlaceRestart.replacePods"],
        "webhooks": wiring.webhook_settings(made),
        "metrics TLS": (
            tls.policy.new_context().minimum_version,
            [cipher["name"] for cipher in tls.policy.new_context().get_ciphers()],
            str(getattr(tls.source, "folder", "")),
        ),
        "owners": made["observability.labels"],
        "backend": made.make(SchedulerFields),
        "restarts": made.make(RestartBackoff),
        "coscheduler": wiring.coscheduler_settings(read(COSCHEDULER)),
    }


@pytest.mark.parametrize("words", [("namespace", "pod"), ("queue", "queue")])
def test_label_of_metrics_is_refused_when_it_is_unknown_or_given_twice(words):
    """The text names the word and what would be right."""
    (problem,) = BY_PATH["observability.labels"].check(words)
    assert problem == f"{words[1]!r}: expected namespace and queue, each at most once"


def test_the_table_is_complete():
    """A new field needs a value here, or a reason."""
    assert {path for path, _ in leaves()} == {*VALUES, *CHECKED_ONLY}


def test_settings_are_equal_without_a_change(tmp_path):
    """Otherwise the next test would prove nothing."""
    assert reached(tmp_path, {}) == reached(tmp_path, {})


@pytest.mark.parametrize("path", VALUES)
def test_each_field_has_an_effect(folder, path):
    """A value in the file changes the settings of some part."""
    without = NEEDS.get(path, {})

    assert reached(folder, {**without, path: VALUES[path]}) != usual(folder, *without.items())


@pytest.mark.parametrize("gate", gate_names())
def test_each_gate_has_an_effect(gate):
    """A gate in the file reaches the controllers and the webhooks."""
    made = file.parse(f"{HEAD}featureGates: {{{gate}: false}}\n")
    off = {
        field.metadata["gate"]: getattr(made.features, field.name)
        for field in attrs.fields(type(made.features))
    }

    assert off == {name: name != gate for name in gate_names()}
    assert wiring.webhook_settings(made).features == made.features


def rows(text):
    """First two cells of the rows of the page's tables."""
    return re.findall(r"^\| `([\w.]+)` \| (.*?) \|", text, re.MULTILINE)


def shown(path, value):
    """A default in the page's format."""
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case "" | ():
            return ""
        case float() if path.endswith(("qps", "PerSecond")):
            return f"`{value:g}`"
        case float():
            return f"`{value * 1000:g}ms`" if 0 < value < 1 else f"`{value:g}s`"
        case tuple():
            return f"`[{', '.join(value)}]`"
        case str() if value.startswith(":"):
            return f'`"{value}"`'
        case _:
            return f"`{value}`"


def test_the_page_has_every_field_with_its_default():
    """The page lists exactly the fields of the file, in their order."""
    text = PAGE.read_text()
    listed = [(path, default) for path, default in rows(text) if "." in path]

    assert listed == [(path, shown(path, value)) for path, value in leaves()]


def test_the_page_has_every_gate():
    """The page lists all gates with their defaults."""
    text = PAGE.read_text().partition("## Feature gates")[2]
    listed = dict(rows(text))

    assert {name: f"`{str(True).lower()}`" for name in gate_names()}.items() <= listed.items()
    assert {"AllAlpha", "TLSOptions"} <= listed.keys()


@pytest.mark.parametrize("command", ["manager", "coscheduler", "run"])
def test_the_page_has_every_flag(command):
    """The page has each flag in the help of each command, and no other."""
    text = PAGE.read_text()
    (subcommands,) = [
        action
        for action in main._parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    known = {
        flag: action.help != argparse.SUPPRESS
        for action in subcommands.choices[command]._actions
        for flag in action.option_strings
        if flag.startswith("--")
    }

    assert {flag for flag, visible in known.items() if visible and f"`{flag}`" not in text} == {
        "--help"
    }
    every = {
        flag
        for parser in subcommands.choices.values()
        for action in parser._actions
        for flag in action.option_strings
    }
    assert {flag for flag in re.findall(r"`(--[\w-]+)", text) if flag not in every} <= {
        "--zap-devel",
        "--zap-stacktrace-level",
        "--zap-time-encoding",
    }
