"""Table of all settings: field in the configuration file, flag, and target.

A setting that is given becomes an argument of the Settings class that uses it (``target``), which
also defines the default. A default is defined here if there is no such class, or if a command has
another default than the class.

``jobsetpy run`` reads the same table, so modules of JobSet are imported only when they are needed.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from jobsetpy.api import keys
from jobsetpy.api.name_rules import dns1035_label, dns1123_label, dns1123_subdomain
from jobsetpy.app.config import value_types
from jobsetpy.app.config.value_types import (
    AMOUNTS,
    ANNOTATIONS,
    BOOLEAN,
    DELAY,
    DURATION,
    INTEGER,
    NAMES,
    NUMBER,
    SWITCH,
    TEXT,
    Kind,
    argument,
)
from jobsetpy.client import DEFAULT_BURST, DEFAULT_QPS
from jobsetpy.manager import MOST_SHARDS

if TYPE_CHECKING:
    from jobsetpy.reconcilers.rules.features import Features

T = TypeVar("T")
Check = Callable[[Any], Sequence[str]]

WEBHOOK_CERT_DIR: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - users' mounts
METRICS_CERT_DIR: Final = "/tmp/k8s-metrics-server/serving-certs"  # noqa: S108 - users' mounts

_CLASSES: Final = {
    "ContainerDefaults": "jobsetpy.reconcilers.rules.injected_containers",
    "CoschedulerSettings": "jobsetpy.coscheduler",
    "GroupBarrier": "jobsetpy.reconcilers.startup_groups.injection",
    "JobsSettings": "jobsetpy.reconcilers.jobs.reconciler",
    "LeaderElectionSettings": "jobsetpy.manager",
    "Limits": "jobsetpy.coscheduler.gang_scheduler.state",
    "LostNodesSettings": "jobsetpy.reconcilers.lost_nodes.reconciler",
    "ManagerSettings": "jobsetpy.manager",
    "SchedulerFields": "jobsetpy.reconcilers.coscheduling.backends",
    "RestartInPlaceSettings": "jobsetpy.reconcilers.restart_in_place.reconciler",
    "RestartBackoff": "jobsetpy.reconcilers.rules.backoff",
    "WebhookServerSettings": "jobsetpy.serving.webhook_settings",
    "WebhookSettings": "jobsetpy.admission",
}
"""Where Settings classes are. Imported when a default is asked for: no command uses them all."""


@attrs.frozen
class Setting:
    """One setting.

    Args:
        path: path of its field in the configuration file; the flag if it is a flag only.
        kind: form of its values.
        target: class and field that receive the value unchanged; "" if it is processed otherwise.
        flag: its flag; "" if only the file can set it.
        help: help text of the flag; ``{}`` stands for the default.
        default: default in the form of the file, if it differs from that of the class.
        check: returns the problems of a value.
    """

    path: str
    kind: Kind
    target: str = ""
    flag: str = ""
    help: str = ""
    default: Any = attrs.field(default=None, kw_only=True)
    check: Check = attrs.field(default=lambda _: (), kw_only=True)

    @property
    def section(self) -> str:
        """Section of the file; "" for a flag alone."""
        return "" if self.path.startswith("--") else self.path.partition(".")[0]

    def default_value(self) -> Any:
        """Return the default in the form of the configuration file."""
        if self.default is not None or not self.target:
            return self.default
        name, _, field = self.target.partition(".")
        cls = getattr(importlib.import_module(_CLASSES[name]), name)
        default = attrs.fields_dict(cls)[field].default
        return "" if default is None else default


def _unless(good: Callable[[Any], bool], why: str) -> Check:
    return lambda value: () if good(value) else (why,)


def _named_by(rule: Callable[[str], Sequence[str]]) -> Check:
    return lambda name: [f"{name!r}: {why}" for why in rule(name) if name]


def _backend_check(name: str) -> Sequence[str]:
    names = keys.COSCHEDULING_BACKENDS
    return () if name in names else (f"{name!r}: must be one of {', '.join(names)}",)


def _lost_node_deadline_check(seconds: float) -> Sequence[str]:
    from jobsetpy.reconcilers.lost_nodes.deadline import problem_of

    problem = problem_of(seconds)
    return (problem,) if problem else ()


def _owner_labels_check(words: Sequence[str]) -> Sequence[str]:
    from jobsetpy.reconcilers.execution.owners import LABELS

    wrong = [word for word in words if word not in LABELS or words.count(word) > 1]
    known = " and ".join(LABELS)
    return [f"{word!r}: expected {known}, each at most once" for word in dict.fromkeys(wrong)]


def _valid(rule: Callable[[str], Sequence[str]], what: str = "") -> Callable[[str], str]:
    def parse(text: str) -> str:
        if problems := rule(text):
            raise ValueError(f"{text!r}{what}: {problems[0]}")
        return text

    return parse


_namespace: Final = _valid(dns1123_label, " is no namespace")


def _namespaces(text: str) -> list[str]:
    return [_namespace(name.strip()) for name in text.split(",")]


_ADDRESS: Final = TEXT.with_flag(metavar="ADDRESS")
_BACKEND: Final = TEXT.with_flag(choices=keys.COSCHEDULING_BACKENDS)
_FOLDER: Final = value_types.PATH.with_flag(metavar="FOLDER")
_NAMESPACES: Final = NAMES.with_flag(
    metavar="NAME,...", action="extend", type=argument(_namespaces)
)
_IMAGE: Final = TEXT.with_flag(metavar="IMAGE")
_NAME: Final = TEXT.with_flag(metavar="NAME")
_SCHEDULER: Final = TEXT.with_flag(metavar="NAME", type=argument(_valid(dns1123_subdomain)))

_SOME_TIME: Final = _unless(lambda seconds: seconds > 0, "must be longer than 0s")
_HOST_PORT: Final = _unless(lambda address: ":" in address, "expected host:port or :port")
_PERMIT: Final = _unless(
    lambda seconds: 0 < seconds <= 840, "must be longer than 0s and at most 840s"
)
_NAMED: Final = _unless(lambda names: all(names or ("",)), "must name clients")
_SHARDS: Final = _unless(
    lambda number: 1 <= number <= MOST_SHARDS, f"must be from 1 to {MOST_SHARDS}"
)
_NOT_NEGATIVE: Final = _unless(lambda number: number >= 0, "must not be negative")

SETTINGS: Final = (
    Setting("webhook.port", INTEGER, default=9443),
    Setting("webhook.host", TEXT, default=""),
    Setting("webhook.certDir", TEXT, default=WEBHOOK_CERT_DIR),
    Setting("--webhooks", SWITCH, "", "--webhooks",
            "serve the admission webhooks as well", default=False),
    Setting("--webhook-bind-address", _ADDRESS, "WebhookServerSettings.bind_address",
            "--webhook-bind-address", "default :9443"),
    Setting("--webhook-cert-dir", _FOLDER, "WebhookServerSettings.certificate_dir",
            "--webhook-cert-dir",
            "folder with tls.crt and tls.key; default: generated certificates"),
    Setting("--webhook-dns-name", NAMES.with_flag(metavar="NAME"),
            "WebhookServerSettings.extra_dns_names", "--webhook-dns-name",
            "more names, or IP addresses, for the webhooks' certificate; may be given again",
            default=()),
    Setting("--webhook-shutdown-delay", value_types.DELAY, "WebhookServerSettings.drain_s",
            "--webhook-shutdown-delay",
            "time for which webhooks are served after SIGTERM; default 5s in a pod, else 0s"),
    Setting("leaderElection.leaderElect", BOOLEAN, "", "--leader-elect",
            "default: what the configuration file says, else {}", default=True),
    Setting("leaderElection.leaseDuration", DURATION, "LeaderElectionSettings.lease_duration_s"),
    Setting("leaderElection.renewDeadline", DURATION, "LeaderElectionSettings.renew_deadline_s"),
    Setting("leaderElection.retryPeriod", DURATION, "LeaderElectionSettings.retry_period_s"),
    Setting("leaderElection.resourceLock", TEXT, default="leases"),
    Setting("leaderElection.resourceName", TEXT, "LeaderElectionSettings.name",
            default="6d4f6a47.jobset.x-k8s.io"),
    Setting("leaderElection.resourceNamespace", TEXT, "LeaderElectionSettings.namespace",
            default=""),
    Setting("--namespace", NAMES.with_flag(metavar="NAMESPACE", type=argument(_namespace)),
            "ManagerSettings.namespaces",
            "--namespace", "namespace of the objects; repeatable; default: all",
            default=()),
    Setting("--namespaces", _NAMESPACES, "ManagerSettings.namespaces", "--namespaces",
            "namespace of this installation's JobSets; repeatable; default: all",
            default=()),
    Setting("shards.count", INTEGER.with_flag(metavar="N"), "", "--shards",
            "number of active managers to shard JobSets across (each has a Lease); default {}",
            default=1, check=_SHARDS),
    Setting("metrics.bindAddress", _ADDRESS, "ManagerSettings.metrics_bind_address",
            "--metrics-bind-address", "host:port, 0 switches it off; default {}", default=":8443"),
    Setting("metrics.certDir", TEXT, default=""),
    Setting("--metrics-secure", BOOLEAN, "", "--metrics-secure",
            "serve metrics over TLS, to clients that the API server authorizes; default {}",
            default=True),
    Setting("observability.labels", NAMES, default=(), check=_owner_labels_check),
    Setting("health.healthProbeBindAddress", _ADDRESS, "ManagerSettings.health_probe_bind_address",
            "--health-probe-bind-address", "host:port, 0 switches it off; default {}",
            default=":8081"),
    Setting("health.readinessEndpointName", TEXT, "ManagerSettings.readiness_path"),
    Setting("health.livenessEndpointName", TEXT, "ManagerSettings.liveness_path"),
    Setting("tls.minVersion", TEXT, default=""),
    Setting("tls.cipherSuites", NAMES, default=()),
    Setting("internalCertManagement.enable", BOOLEAN, default=True),
    Setting("internalCertManagement.webhookServiceName", TEXT, "WebhookSettings.service_name",
            check=_named_by(dns1035_label)),
    Setting("internalCertManagement.webhookSecretName", TEXT, "WebhookSettings.secret_name",
            check=_named_by(dns1123_subdomain)),
    Setting("internalCertManagement.mutatingConfigurationName", TEXT,
            "WebhookSettings.mutating_configuration", check=_named_by(dns1123_subdomain)),
    Setting("internalCertManagement.validatingConfigurationName", TEXT,
            "WebhookSettings.validating_configuration", check=_named_by(dns1123_subdomain)),
    Setting("clientConnection.qps", NUMBER, "", "--kube-api-qps",
            "requests a second to the API server; default {}, 0: no limit",
            default=DEFAULT_QPS),
    Setting("clientConnection.burst", INTEGER, "", "--kube-api-burst",
            "maximum requests in a burst; default {}", default=DEFAULT_BURST),
    Setting("inPlaceRestart.agentImage", _IMAGE, "WebhookSettings.agent_image", "--agent-image",
            "image of the agent that webhooks inject into JobSets with the agent annotation"),
    Setting("inPlaceRestart.defaults", ANNOTATIONS, default={}),
    Setting("inPlaceRestart.stalledAfter", DURATION, "RestartInPlaceSettings.stalled_after_s",
            check=_SOME_TIME),
    Setting("inPlaceRestart.replacePods", BOOLEAN, default=True),
    Setting("inPlaceRestart.agentEventsPerSecond", NUMBER, "JobsSettings.agent_events_per_s",
            check=_NOT_NEGATIVE),
    Setting("lostNodes.deadline", DELAY, "LostNodesSettings.deadline_s",
            check=_lost_node_deadline_check),
    Setting("restarts.backoff", DELAY, "RestartBackoff.first_s"),
    Setting("restarts.recreationBackoff", DELAY, "RestartBackoff.recreation_first_s"),
    Setting("restarts.maxBackoff", DURATION, "RestartBackoff.longest_s", check=_SOME_TIME),
    Setting("restarts.backoffResetAfter", DURATION, "RestartBackoff.reset_after_s",
            check=_SOME_TIME),
    Setting("groupScheduling.image", _IMAGE, "GroupBarrier.shell_image",
            "--group-scheduling-image",
            "image with a shell, in which pods of a startup group wait; default {}",
            default=keys.GROUP_IMAGE),
    Setting("groupScheduling.agentImage", _IMAGE, "GroupBarrier.agent_image",
            "--group-scheduling-agent-image",
            "image of an agent that waits instead, and continues within a second; default: none"),
    Setting("groupScheduling.manageRbac", BOOLEAN, "JobsSettings.group_rbac",
            "--group-scheduling-rbac",
            "create a Role with which pods watch the ConfigMap of their group; default {}"),
    Setting("injectedContainers.requests", AMOUNTS, "ContainerDefaults.requests", default={}),
    Setting("injectedContainers.limits", AMOUNTS, "ContainerDefaults.limits", default={}),
    Setting("injectedContainers.pullSecret", TEXT, "ContainerDefaults.pull_secret",
            check=_named_by(dns1123_subdomain)),
    Setting("coscheduler.bindAddress", _ADDRESS, "CoschedulerSettings.bind_address",
            "--bind-address", "address of the extender, host:port or :port; default {}",
            check=_HOST_PORT),
    Setting("coscheduler.certDir", _FOLDER, "CoschedulerSettings.certificate_dir", "--cert-dir",
            "folder with tls.crt, tls.key, ca.crt (for clients); default: generated certificates"),
    Setting("coscheduler.clientNames", NAMES, "CoschedulerSettings.client_names", "--client-name",
            "common name of an accepted client certificate; repeatable; default {}", check=_NAMED),
    Setting("coscheduler.serviceName", _NAME, "CoschedulerSettings.service_name", "--service-name",
            "Service name in a generated certificate; default {}"),
    Setting("coscheduler.extraDnsNames", NAMES, "CoschedulerSettings.extra_dns_names"),
    Setting("coscheduler.permitTimeout", DURATION, "Limits.permit_s", "--permit-timeout",
            "time for which binds of an incomplete gang are held, plus 50 ms for each pod, at "
            "most 14 minutes; default {}", check=_PERMIT),
    Setting("coscheduler.schedulerName", _SCHEDULER, "CoschedulerSettings.scheduler_name",
            "--scheduler-name", "name of the scheduler that asks; managers set it on pods of "
            "gangs; default: default-scheduler", check=_named_by(dns1123_subdomain)),
    Setting("coscheduler.memberResource", BOOLEAN, "CoschedulerSettings.member_resource",
            "--member-resource",
            f"request {keys.POD_GROUP_MEMBER_RESOURCE} in pods of gangs; default {{}}"),
    Setting("--insecure-plain-http", SWITCH, "CoschedulerSettings.plain_http",
            "--insecure-plain-http",
            "no TLS and no client certificates: any client that connects can bind pods"),
    Setting("coscheduling.backend", _BACKEND, "SchedulerFields.backend",
            "--coscheduling-backend",
            "scheduler of gangs; default {}: a coscheduler, where one is installed",
            check=_backend_check),
    Setting("coscheduling.schedulerName", _SCHEDULER, "SchedulerFields.scheduler_name",
            "--coscheduling-scheduler-name",
            "scheduler next to the coscheduler, for pods without one; default: default-scheduler",
            check=_named_by(dns1123_subdomain)),
    Setting("coscheduling.memberResource", BOOLEAN, "SchedulerFields.member_resource",
            "--coscheduling-member-resource",
            f"request {keys.POD_GROUP_MEMBER_RESOURCE} in pods of gangs; default {{}}"),
)  # fmt: skip


@attrs.frozen
class Command:
    """A command that runs a manager.

    Args:
        name: name on the command line.
        sections: sections of the configuration file that it reads; it has their flags.
        flags: flags that belong to no section.
        defaults: defaults that differ from the manager's, by path.
        metrics_service: Service name in a generated certificate for metrics.
    """

    name: str
    sections: frozenset[str]
    flags: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    metrics_service: str = ""

    def uses(self, setting: Setting) -> bool:
        """Return True if the command has a setting."""
        return setting.section in self.sections or setting.path in self.flags


_SERVERS: Final = frozenset({"metrics", "health", "clientConnection"})
_REPLICAS: Final = _SERVERS | {"leaderElection", "tls"}
MANAGER: Final = Command(
    "manager",
    _REPLICAS
    | {"webhook", "internalCertManagement", "inPlaceRestart", "groupScheduling", "coscheduling"}
    | {"injectedContainers", "lostNodes", "restarts", "featureGates", "shards", "observability"},
    frozenset(each.flag for each in SETTINGS if each.path.startswith("--webhook"))
    | {"--metrics-secure", "--namespaces"},
    metrics_service="jobset-controller-manager-metrics-service",
)
COSCHEDULER: Final = Command(
    "coscheduler",
    _REPLICAS | {"coscheduler"},
    frozenset({"--metrics-secure", "--insecure-plain-http"}),
    {
        "leaderElection.resourceName": "coscheduler.jobset.x-k8s.io",
        # A pod takes two requests, and a cluster's groups may all come at once.
        "clientConnection.qps": 2000.0,
        "clientConnection.burst": 4000,
    },
    "jobset-coscheduler-metrics-service",
)
RUN: Final = Command(
    "run",
    _SERVERS | {"leaderElection"},
    frozenset({"--namespace", "--webhook-bind-address", "--webhook-cert-dir"})
    | {"--webhook-dns-name", "--webhook-shutdown-delay"},
    defaults={
        "metrics.bindAddress": "0",
        "health.healthProbeBindAddress": "0",
        "leaderElection.leaderElect": False,
        "--metrics-secure": False,
    },
)


@attrs.frozen(kw_only=True)
class Configuration:
    """Configuration of a command.

    Args:
        command: command whose defaults apply.
        values: values from file and flags, by path; without those that count as absent.
        feature_gates: feature gates that are given.
        given: paths of all fields in the file, such as ``metrics`` and ``metrics.certDir``.
    """

    command: Command = MANAGER
    values: Mapping[str, Any] = attrs.field(factory=dict)
    feature_gates: Mapping[str, bool] = attrs.field(factory=dict)
    given: frozenset[str] = attrs.field(default=frozenset(), eq=False)

    @property
    def features(self) -> Features:
        """The feature gates; defaults for those that are not given."""
        from jobsetpy.reconcilers.rules.features import Features

        return Features.from_gates(self.feature_gates)

    def __getitem__(self, path: str) -> Any:
        """A setting's value, or its default."""
        for known in self.values, self.command.defaults:
            if path in known:
                return known[path]
        return BY_PATH[path].default_value()

    def make(self, cls: type[T], **others: Any) -> T:
        """A Settings value of all settings that ``cls`` takes.

        Args:
            cls: a Settings class; it fills in the remaining defaults.
            others: more arguments; of those that are settings, what is given wins.
        """
        arguments = dict(others)
        names = {each.__name__ for each in cls.__mro__}
        for setting in SETTINGS:
            name, _, field = setting.target.partition(".")
            if name not in names:
                continue
            if setting.path in self.values:
                arguments[field] = setting.kind.convert(self.values[setting.path])
            elif setting.default is not None or setting.path in self.command.defaults:
                arguments.setdefault(field, self[setting.path])
        return cls(**arguments)

    def section(self, name: str) -> dict[str, Any]:
        """Values of the file's section, by the name of the field."""
        return {
            setting.path.partition(".")[2]: self[setting.path]
            for setting in SETTINGS
            if setting.section == name
        }


BY_PATH: Final = {setting.path: setting for setting in SETTINGS}


def snake_case(name: str) -> str:
    """``certDir`` as ``cert_dir``."""
    return re.sub(r"([A-Z])", r"_\1", name).lower()
