"""The configuration file: ``config.jobset.x-k8s.io/v1alpha1``, kind ``Configuration``.

Same fields, defaults and checks as users of JobSet have. Decoding is strict: a field that does not
exist, a value of another type and a key given twice are errors, each told with its path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from jobsetpy.app import _tls_names as tls_names
from jobsetpy.domain.coscheduling.backends import BACKENDS, LABELS
from jobsetpy.domain.features import Features, gate_problems
from jobsetpy.domain.name_rules import dns1035_label, dns1123_subdomain

API_VERSION: Final = "config.jobset.x-k8s.io/v1alpha1"
KIND: Final = "Configuration"

WEBHOOK_CERT_DIR: Final = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - users' mounts
METRICS_CERT_DIR: Final = "/tmp/k8s-metrics-server/serving-certs"  # noqa: S108 - users' mounts

T = TypeVar("T")


class ConfigurationError(Exception):
    """The configuration cannot be used.

    Args:
        problems: one line each, with the field's path where there is one.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@attrs.frozen(kw_only=True)
class Webhook:
    """Where the webhook server listens, and which files it takes its certificate from."""

    port: int = 9443
    host: str = ""
    cert_dir: str = WEBHOOK_CERT_DIR


@attrs.frozen(kw_only=True)
class LeaderElection:
    """Which of several managers works; durations in seconds."""

    leader_elect: bool = True
    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0
    resource_lock: str = "leases"
    resource_name: str = "6d4f6a47.jobset.x-k8s.io"
    resource_namespace: str = ""


@attrs.frozen(kw_only=True)
class Metrics:
    """Where metrics are served; ``bind_address`` "0" switches them off."""

    bind_address: str = ":8443"
    cert_dir: str = ""


@attrs.frozen(kw_only=True)
class Health:
    """Where health and readiness are served, and under which paths."""

    health_probe_bind_address: str = ":8081"
    readiness_endpoint_name: str = "/readyz"
    liveness_endpoint_name: str = "/healthz"


@attrs.frozen(kw_only=True)
class Tls:
    """Least TLS version ("" is 1.2) and TLS 1.2 cipher suites by their IANA names."""

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class InternalCertManagement:
    """Whether the manager makes its webhook certificates, and the objects it needs for that."""

    enable: bool = True
    webhook_service_name: str = ""
    webhook_secret_name: str = ""


@attrs.frozen(kw_only=True)
class ClientConnection:
    """Limits of the manager's own requests; ``qps`` 0 is no limit."""

    qps: float = 500.0
    burst: int = 500


@attrs.frozen(kw_only=True)
class InPlaceRestart:
    """Restarts in place.

    ``agent_image`` is that of the agent that the webhook adds to JobSets that ask for it; "" has
    none added. A barrier that stays closed for longer than ``stalled_after`` seconds is said to be
    stalled, with the names of the pods that hold it.

    Not a field of today's controller.
    """

    agent_image: str = ""
    stalled_after: float = 60.0


@attrs.frozen(kw_only=True)
class GroupScheduling:
    """How pods of a group wait for each other (KEP-498).

    ``image`` has a shell; with ``agent_image`` they wait by means of the agent, which is faster,
    and ``manage_rbac`` has their service accounts given the right that it needs for that.

    Not a field of today's controller, which does no group scheduling.
    """

    image: str = "bash"
    agent_image: str = ""
    manage_rbac: bool = False


@attrs.frozen(kw_only=True)
class Coscheduling:
    """What schedules the groups of JobSets that ask for coscheduling.

    ``backend`` is ``labels``, ``coscheduler`` or ``podgroup`` (``domain.coscheduling.backends``).
    With the coscheduler, pods that name no scheduler go to the one of ``scheduler_name``, and with
    ``member_resource`` they ask for the resource by which a scheduler can tell them from others.

    Not a field of today's controller, which knows no coscheduling.
    """

    backend: str = LABELS
    scheduler_name: str = ""
    member_resource: bool = False


@attrs.frozen(kw_only=True)
class Coscheduler:
    """The command ``coscheduler``; the manager does not look at it. Durations in seconds.

    Not a field of today's controller.
    """

    bind_address: str = ":9443"
    path_prefix: str = "/ext"
    cert_dir: str = ""
    client_ca_file: str = ""
    client_names: tuple[str, ...] = ("system:kube-scheduler",)
    service_name: str = "jobset-coscheduler"
    extra_dns_names: tuple[str, ...] = ()
    server_secret_name: str = "jobset-coscheduler-server-cert"  # noqa: S105 - a name, not a secret
    client_secret_name: str = "jobset-coscheduler-client-cert"  # noqa: S105 - a name, not a secret
    permit_timeout: float = 30.0
    permit_timeout_per_pod: float = 0.05
    max_permit_timeout: float = 80.0
    first_backoff: float = 1.0
    max_backoff: float = 10.0
    shutdown_grace: float = 5.0
    groups_in_flight: int = 4
    stuck_groups: int = 32
    concurrent_writes: int = 32
    max_held_binds: int = 8000
    backlog: int = 4096
    ordinary_pods: bool = True
    capacity_check: bool = True


@attrs.frozen(kw_only=True)
class Configuration:
    """A configuration file with its defaults filled in.

    ``given`` holds the paths of what the file itself says, such as ``metrics.certDir``.
    """

    webhook: Webhook = Webhook()
    leader_election: LeaderElection = LeaderElection()
    metrics: Metrics = Metrics()
    health: Health = Health()
    tls: Tls | None = None
    internal_cert_management: InternalCertManagement = InternalCertManagement()
    client_connection: ClientConnection = ClientConnection()
    in_place_restart: InPlaceRestart = InPlaceRestart()
    group_scheduling: GroupScheduling = GroupScheduling()
    coscheduler: Coscheduler = Coscheduler()
    coscheduling: Coscheduling = Coscheduling()
    feature_gates: Mapping[str, bool] = attrs.field(factory=dict)
    given: frozenset[str] = attrs.field(default=frozenset(), eq=False)

    @property
    def features(self) -> Features:
        """The feature gates; defaults for those that are not given."""
        return Features.from_gates(self.feature_gates)


def defaults() -> Configuration:
    """What holds without a file."""
    return _defaulted(Configuration())


def load(path: Path) -> Configuration:
    """Read a file, YAML or JSON.

    Raises:
        ConfigurationError: it cannot be read, does not decode, or its values are not valid; with
            every problem of the stage that found one.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"cannot read {path}: {error}"]) from error
    configuration = parse(text)
    problems = validate(configuration)
    if problems:
        raise ConfigurationError(problems)
    return configuration


def parse(text: str) -> Configuration:
    """Decode a file's text strictly and fill in the defaults.

    Raises:
        ConfigurationError: with every problem found.
    """
    content = _yaml(text)
    if not isinstance(content, dict):
        raise ConfigurationError([f"expected a mapping with apiVersion {API_VERSION}"])
    kind = (content.pop("apiVersion", None), content.pop("kind", None))
    if kind != (API_VERSION, KIND):
        problem = f"expected apiVersion {API_VERSION}, kind {KIND}; got {kind[0]}, {kind[1]}"
        raise ConfigurationError([problem])
    content = _without_null(content)
    return attrs.evolve(_defaulted(_structured(content)), given=frozenset(_paths(content)))


def validate(configuration: Configuration) -> list[str]:
    """What is wrong with the values; a line for each problem, with the field's path in front."""
    problems = coscheduler_problems(configuration.coscheduler)
    internal = configuration.internal_cert_management
    if internal.enable:
        for field, value, check in (
            ("webhookServiceName", internal.webhook_service_name, dns1035_label),
            ("webhookSecretName", internal.webhook_secret_name, dns1123_subdomain),
        ):
            path = f"internalCertManagement.{field}"
            problems += [f"{path}: Invalid value: {value!r}: {why}" for why in check(value)]
    if configuration.in_place_restart.stalled_after <= 0:
        problems.append("inPlaceRestart.stalledAfter: Invalid value: must be longer than 0s")
    problems += _coscheduling_problems(configuration.coscheduling)
    if configuration.tls is not None:
        problems += tls_names.problems(
            configuration.tls.min_version, configuration.tls.cipher_suites
        )
    return problems + [f"featureGates: {why}" for why in gate_problems(configuration.feature_gates)]


def _coscheduling_problems(wanted: Coscheduling) -> list[str]:
    problems = []
    if wanted.backend not in BACKENDS:
        why = f"must be one of {', '.join(BACKENDS)}"
        problems.append(f"coscheduling.backend: Invalid value: {wanted.backend!r}: {why}")
    if wanted.scheduler_name:
        problems += [
            f"coscheduling.schedulerName: Invalid value: {wanted.scheduler_name!r}: {why}"
            for why in dns1123_subdomain(wanted.scheduler_name)
        ]
    return problems


def coscheduler_problems(section: Coscheduler) -> list[str]:
    """What is wrong with the section of the coscheduler; a line for each problem."""
    wrong = {
        "bindAddress": None if ":" in section.bind_address else "expected host:port or :port",
        "pathPrefix": None
        if not section.path_prefix or section.path_prefix.startswith("/")
        else "must begin with /",
        "clientNames": None if all(section.client_names or ("",)) else "must name clients",
        "maxPermitTimeout": None
        if section.max_permit_timeout >= section.permit_timeout > 0
        else "must not be shorter than permitTimeout, and both longer than 0s",
        "maxBackoff": None
        if section.max_backoff >= section.first_backoff > 0
        else "must not be shorter than firstBackoff, and both longer than 0s",
    }
    for field in ("groupsInFlight", "concurrentWrites", "maxHeldBinds", "backlog"):
        if getattr(section, re.sub(r"([A-Z])", r"_\1", field).lower()) < 1:
            wrong[field] = "must be at least 1"
    if section.stuck_groups < 0:
        wrong["stuckGroups"] = "must not be negative"
    return [f"coscheduler.{field}: Invalid value: {why}" for field, why in wrong.items() if why]


# -- decoding -------------------------------------------------------------------------------------

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(h|ms|m|s|us|µs|ns)")


def parse_duration(text: str) -> float:
    """Seconds of a duration in Go's form: ``15s``, ``1m30s``, ``0``.

    Raises:
        ValueError: it is none, or negative.
    """
    if text == "0":
        return 0.0
    seconds, end = 0.0, 0
    for part in _DURATION.finditer(text):
        if part.start() != end:
            break
        seconds += float(part[1]) * _UNITS[part[2]]
        end = part.end()
    if not text or end != len(text):
        msg = f"{text!r} is no duration such as 15s or 1m30s"
        raise ValueError(msg)
    return seconds


def _yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key that a mapping has already."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str):
                    continue
                if key in seen:
                    msg = f'key "{key}" already set in map (line {key_node.start_mark.line + 1})'
                    raise ConfigurationError([msg])
                seen.add(key)
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)  # noqa: S506 - a safe loader, made stricter
    except yaml.YAMLError as error:
        raise ConfigurationError([f"no valid YAML: {error}"]) from error
    except RecursionError as error:
        raise ConfigurationError(["no valid YAML: nested too deeply"]) from error


def _without_null(value: Any) -> Any:
    """``null`` counts as absent, as everywhere in Kubernetes."""
    if not isinstance(value, dict):
        return value
    return {key: _without_null(item) for key, item in value.items() if item is not None}


def _paths(content: Mapping[str, Any], prefix: str = "") -> list[str]:
    paths = []
    for key, value in content.items():
        paths.append(f"{prefix}{key}")
        if isinstance(value, dict):
            paths += _paths(value, f"{prefix}{key}.")
    return paths


def _structured(content: Mapping[str, Any]) -> Configuration:
    # Imported here: a manager without a file need not carry it.
    from cattrs import ClassValidationError, Converter, ForbiddenExtraKeysError, transform_error
    from cattrs.gen import make_dict_structure_fn, override

    converter = Converter(forbid_extra_keys=True, detailed_validation=True)
    for kind, name in ((str, "a string"), (bool, "true or false"), (int, "an integer")):
        converter.register_structure_hook(kind, _exactly(kind, name))
    converter.register_structure_hook(float, _number)
    for cls in (
        *(Webhook, LeaderElection, Metrics, Health, Tls, InternalCertManagement),
        *(ClientConnection, InPlaceRestart, GroupScheduling, Coscheduling, Coscheduler),
        Configuration,
    ):
        names: dict[str, Any] = {
            each.name: override(
                rename=_camel(each.name),
                omit=each.name == "given",
                struct_hook=_duration if each.name in _DURATIONS else None,
            )
            for each in attrs.fields(cls)
        }
        made = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, **names)
        converter.register_structure_hook(cls, _of_mapping(made))

    def text(error: BaseException, _: Any) -> str:
        if isinstance(error, ForbiddenExtraKeysError):
            return _UNKNOWN + ", ".join(sorted(error.extra_fields))
        return str(error)

    try:
        return converter.structure(content, Configuration)
    except ClassValidationError as error:
        raise ConfigurationError(
            [_told(line) for line in transform_error(error, path="", format_exception=text)]
        ) from None


_DURATIONS: Final = frozenset(
    {
        *("lease_duration", "renew_deadline", "retry_period", "stalled_after"),
        *("permit_timeout", "permit_timeout_per_pod", "max_permit_timeout"),
        *("first_backoff", "max_backoff", "shutdown_grace"),
    }
)
_UNKNOWN: Final = "unknown fields "


def _told(line: str) -> str:
    """``webhook.port: text`` from cattrs' ``text @ .webhook.port``."""
    problem, _, path = line.rpartition(" @ ")
    path = _wire_path(path.removeprefix("."))
    if problem.startswith(_UNKNOWN):
        names = problem.removeprefix(_UNKNOWN).split(", ")
        prefix = f"{path}." if path else ""
        return ", ".join(f'unknown field "{prefix}{name}"' for name in names)
    return f"{path}: {problem}"


def _wire_path(path: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), path)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _of_mapping(structure: Callable[[Mapping[str, Any], Any], Any]) -> Callable[[Any, Any], Any]:
    def hook(value: Any, cls: Any) -> Any:
        if not isinstance(value, dict):
            msg = f"expected a mapping, got {value!r}"
            raise TypeError(msg)
        return structure(value, cls)

    return hook


def _exactly(kind: type[T], name: str) -> Callable[[Any, Any], T]:
    def hook(value: Any, _: Any) -> T:
        if type(value) is not kind:
            msg = f"expected {name}, got {value!r}"
            raise TypeError(msg)
        return value

    return hook


def _number(value: Any, _: Any) -> float:
    if type(value) not in {int, float} or not math.isfinite(value):
        msg = f"expected a number, got {value!r}"
        raise TypeError(msg)
    return float(value)


def _duration(value: Any, _: Any) -> float:
    if not isinstance(value, str):
        msg = f"expected a duration such as 15s, got {value!r}"
        raise TypeError(msg)
    return parse_duration(value)


def _defaulted(configuration: Configuration) -> Configuration:
    """Values that count as not given are given their defaults."""
    election, health = configuration.leader_election, configuration.health
    internal = configuration.internal_cert_management
    if internal.enable:
        internal = attrs.evolve(
            internal,
            webhook_service_name=internal.webhook_service_name or "jobset-webhook-service",
            webhook_secret_name=internal.webhook_secret_name or "jobset-webhook-server-cert",
        )
    metrics = _filled(configuration.metrics, Metrics())
    if not metrics.cert_dir and not internal.enable:
        metrics = attrs.evolve(metrics, cert_dir=METRICS_CERT_DIR)
    return attrs.evolve(
        configuration,
        webhook=_filled(configuration.webhook, Webhook()),
        leader_election=attrs.evolve(
            _filled(election, LeaderElection()), leader_elect=election.leader_elect
        ),
        metrics=metrics,
        health=_filled(health, Health()),
        internal_cert_management=internal,
    )


def _filled(given: Any, default: Any) -> Any:
    """``given`` with the default's value wherever it has an empty text or a zero."""
    return type(given)(
        **{
            each.name: getattr(given, each.name) or getattr(default, each.name)
            for each in attrs.fields(type(given))
        }
    )
