"""What a manager runs with: the configuration file, overridden by flags that are given explicitly.

A flag's own default never overrides the file. What the file says and this manager does not do (yet)
is named, so that nobody relies on it unknowingly.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from jobsetpy.api import keys
from jobsetpy.app import _tls_names as tls_names
from jobsetpy.app import configuration as file
from jobsetpy.app.configuration import Configuration
from jobsetpy.app.election import NAMESPACE_FILE
from jobsetpy.domain.coscheduling.backends import BACKENDS, COSCHEDULER
from jobsetpy.domain.features import gate_names, gate_problems
from jobsetpy.domain.name_rules import dns1123_subdomain
from jobsetpy.observability.logging import Format, get_logger

if TYPE_CHECKING:
    from jobsetpy.admission import EndpointCertificate

_OVERRIDES: Final = {
    "metrics_bind_address": ("metrics", "bind_address"),
    "health_probe_bind_address": ("health", "health_probe_bind_address"),
    "leader_elect": ("leader_election", "leader_elect"),
    "kube_api_qps": ("client_connection", "qps"),
    "kube_api_burst": ("client_connection", "burst"),
    "agent_image": ("in_place_restart", "agent_image"),
    "stalled_after": ("in_place_restart", "stalled_after"),
    "group_scheduling_image": ("group_scheduling", "image"),
    "group_scheduling_agent_image": ("group_scheduling", "agent_image"),
    "group_scheduling_rbac": ("group_scheduling", "manage_rbac"),
    "coscheduling_backend": ("coscheduling", "backend"),
    "coscheduling_scheduler_name": ("coscheduling", "scheduler_name"),
    "coscheduling_member_resource": ("coscheduling", "member_resource"),
}
"""Flag → section and field of the file that it overrides."""

METRICS_SERVICE: Final = "jobset-controller-manager-metrics-service"

IN_POD_DRAIN_S: Final = 5.0
"""How long all API servers and proxies may take to hear that a pod ends."""

_ZAP_LEVELS: Final = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of the file's overrides; a value of ``None`` says that one was not given."""
    gates = ",".join(f"{name}=true|false" for name in gate_names())
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML)")
    parser.add_argument(
        "--feature-gates", type=parse_gates, default=None, metavar="NAME=BOOL,...", help=gates
    )
    add_election_flags(parser)
    parser.add_argument(
        "--in-place-restart-stalled-after",
        dest="stalled_after",
        type=positive_duration,
        metavar="DURATION",
        help="closed barriers name the pods that hold them after this time; default 60s",
    )
    parser.add_argument(
        "--group-scheduling-image",
        metavar="IMAGE",
        help="with a shell, in which pods of a group wait for each other; default bash",
    )
    parser.add_argument(
        "--group-scheduling-agent-image",
        metavar="IMAGE",
        help="agent by which they wait in its place, to go on within a second; default: none",
    )
    parser.add_argument(
        "--group-scheduling-rbac",
        nargs="?",
        const=True,
        type=boolean,
        metavar="BOOL",
        help="have a Role made that lets them watch their group's ConfigMap; default false",
    )
    parser.add_argument(
        "--webhook-shutdown-delay",
        type=_duration,
        metavar="DURATION",
        help="webhooks are served for so long after SIGTERM; default 5s in a pod, else 0s",
    )
    _add_coscheduling_flags(parser)
    # Manifests made for today's controller may have these; they are taken in their sense, or for
    # nothing where they have none here.
    parser.add_argument("--zap-log-level", choices=[*_ZAP_LEVELS, "1", "2"], help=argparse.SUPPRESS)
    parser.add_argument("--zap-encoder", choices=("json", "console"), help=argparse.SUPPRESS)
    parser.add_argument("--zap-devel", nargs="?", const=True, type=boolean, help=argparse.SUPPRESS)
    for name in ("--zap-stacktrace-level", "--zap-time-encoding"):
        parser.add_argument(name, help=argparse.SUPPRESS)


def _duration(text: str) -> float:
    try:
        return file.parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_coscheduling_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--coscheduling-backend",
        choices=BACKENDS,
        help="what schedules groups of coscheduling; default labels: a plugin of the scheduler's",
    )
    parser.add_argument(
        "--coscheduling-scheduler-name",
        type=_scheduler_name,
        metavar="NAME",
        help="scheduler beside the coscheduler, for pods that name none; default: the usual one",
    )
    parser.add_argument(
        "--coscheduling-member-resource",
        nargs="?",
        const=True,
        type=boolean,
        metavar="BOOL",
        help=f"have pods of groups ask for {keys.POD_GROUP_MEMBER_RESOURCE}; default false",
    )


def _scheduler_name(text: str) -> str:
    problems = dns1123_subdomain(text)
    if problems:
        raise argparse.ArgumentTypeError(f"{text!r}: {problems[0]}")
    return text


def add_election_flags(parser: argparse.ArgumentParser) -> None:
    """Flags of everything that runs with replicas."""
    parser.add_argument(
        "--leader-elect",
        nargs="?",
        const=True,
        type=boolean,
        default=None,
        metavar="BOOL",
        help="default: what the configuration file says, else true",
    )
    parser.add_argument(
        "--metrics-secure",
        nargs="?",
        const=True,
        type=boolean,
        default=True,
        metavar="BOOL",
        help="metrics over TLS, for those whom the API server lets read them; default true",
    )


def positive_duration(text: str) -> float:
    """Seconds of a duration that is longer than none.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    seconds = _duration(text)
    if seconds <= 0:
        msg = f"{text!r} must be longer than 0s"
        raise argparse.ArgumentTypeError(msg)
    return seconds


def with_double_dashes(arguments: list[str]) -> list[str]:
    """Arguments with long flags of one dash (``-config``) given two."""
    return [
        f"-{each}" if len(each) > 2 and each[0] == "-" and each[1].isalpha() else each
        for each in arguments
    ]


def parse_gates(text: str) -> dict[str, bool]:
    """``A=true,B=false`` as a map.

    Raises:
        argparse.ArgumentTypeError: another form, an unknown gate, or a locked one.
    """
    gates: dict[str, bool] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            msg = f"{part!r} is not NAME=true or NAME=false"
            raise argparse.ArgumentTypeError(msg)
        gates[name.strip()] = boolean(value.strip())
    problems = gate_problems(gates)
    if problems:
        raise argparse.ArgumentTypeError("; ".join(problems))
    return gates


def read(options: argparse.Namespace) -> Configuration:
    """The effective configuration of parsed flags.

    Raises:
        ConfigurationError: the file cannot be used; with every problem.
    """
    configuration = file.load(Path(options.config)) if options.config else file.defaults()
    configuration = _overridden(configuration, options)
    gates = {**configuration.feature_gates, **(getattr(options, "feature_gates", None) or {})}
    given = configuration.given
    if options.leader_elect is not None:
        given |= {"leaderElection"}
    return attrs.evolve(configuration, feature_gates=gates, given=given)


def without_file(options: argparse.Namespace) -> Configuration:
    """What a controller of the user's own runs with: no server unless it is asked for."""
    quiet = attrs.evolve(
        file.defaults(),
        metrics=file.Metrics(bind_address="0"),
        health=file.Health(health_probe_bind_address="0"),
    )
    return _overridden(quiet, options)


def _overridden(configuration: Configuration, options: argparse.Namespace) -> Configuration:
    for flag, (section, field) in _OVERRIDES.items():
        value = getattr(options, flag, None)
        if value is not None:
            changed = attrs.evolve(getattr(configuration, section), **{field: value})
            configuration = attrs.evolve(configuration, **{section: changed})
    return configuration


def log_options(options: argparse.Namespace) -> tuple[Format, str]:
    """Format and level of log lines; our own flags win over those of today's controller."""
    level = options.log_level
    if level is None:
        zap = getattr(options, "zap_log_level", None)
        level = "info" if zap is None else _ZAP_LEVELS.get(zap, "debug")
    return options.log_format or getattr(options, "zap_encoder", None) or "auto", level


def log(configuration: Configuration, *, webhooks: bool) -> None:
    """Log the configuration in effect, and a warning for each part of it that has no effect."""
    logger = get_logger("manager")
    content = attrs.asdict(configuration)
    content.pop("given")
    logger.info("configuration", **content)
    for path in without_effect(configuration, webhooks=webhooks):
        logger.warning("this part of the configuration has no effect", field=path)


def without_effect(configuration: Configuration, *, webhooks: bool) -> list[str]:
    """Paths of what is given and this manager does not act on.

    Args:
        configuration: as read.
        webhooks: whether this manager serves webhooks.
    """
    idle = []
    if not webhooks:
        idle += ["webhook", "internalCertManagement", "inPlaceRestart.agentImage"]
        idle += ["groupScheduling.image", "groupScheduling.agentImage"]
    elif configuration.internal_cert_management.enable:
        idle.append("webhook.certDir")  # own certificates are kept in memory
    if not configuration.features.coscheduling:
        idle.append("coscheduling")
    elif configuration.coscheduling.backend != COSCHEDULER:
        idle += ["coscheduling.schedulerName", "coscheduling.memberResource"]
    return [path for path in idle if path in configuration.given]


def webhook_settings(
    configuration: Configuration, options: argparse.Namespace
) -> Mapping[str, Any]:
    """What ``admission.WebhookSettings`` is made of, as keyword arguments."""
    internal, tls = configuration.internal_cert_management, configuration.tls or file.Tls()
    webhook = configuration.webhook
    host = f"[{webhook.host}]" if ":" in webhook.host else webhook.host
    out: dict[str, Any] = {
        "bind_address": options.webhook_bind_address or f"{host}:{webhook.port}",
        "drain_s": _drain_s(options.webhook_shutdown_delay),
        "features": configuration.features,
        "agent_image": configuration.in_place_restart.agent_image,
        "group_image": configuration.group_scheduling.image,
        "group_agent_image": configuration.group_scheduling.agent_image,
        "tls13_only": tls.min_version == "VersionTLS13",
        "ciphers": tls_names.openssl_ciphers(tls.cipher_suites),
    }
    if internal.enable:
        out["service_name"] = internal.webhook_service_name
        out["secret_name"] = internal.webhook_secret_name
    else:
        out["certificate_dir"] = Path(webhook.cert_dir)
    if options.webhook_cert_dir is not None:
        out["certificate_dir"] = Path(options.webhook_cert_dir)
    return out


def _drain_s(asked: float | None) -> float:
    """Seconds of webhooks after SIGTERM: a pod's Service is left only when all have heard of it."""
    if asked is not None:
        return asked
    return IN_POD_DRAIN_S if NAMESPACE_FILE.exists() else 0.0


def metrics_tls(
    configuration: Configuration, options: argparse.Namespace, *, service: str = METRICS_SERVICE
) -> EndpointCertificate | None:
    """How metrics are protected; ``None`` when they are served in plain, or not at all.

    Args:
        configuration: as read.
        options: parsed flags.
        service: in the name of a certificate that is made here.

    Raises:
        ConfigurationError: the TLS library cannot do what the ``tls`` section asks for.
    """
    if not options.metrics_secure or configuration.metrics.bind_address in {"", "0"}:
        return None
    from jobsetpy.admission import EndpointCertificate

    folder, tls = configuration.metrics.cert_dir, configuration.tls or file.Tls()
    try:
        return EndpointCertificate(
            folder=Path(folder) if folder else None,
            names=(service,),
            tls13_only=tls.min_version == "VersionTLS13",
            ciphers=tls_names.openssl_ciphers(tls.cipher_suites),
        )
    except ValueError as error:
        raise file.ConfigurationError([f"tls: {error}"]) from None


def boolean(text: str) -> bool:
    """As Go's flags read it."""
    if text in {"1", "t", "T", "true", "TRUE", "True"}:
        return True
    if text in {"0", "f", "F", "false", "FALSE", "False"}:
        return False
    msg = f"{text!r} is neither true nor false"
    raise argparse.ArgumentTypeError(msg)
