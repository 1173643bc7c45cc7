"""``jobsetpy coscheduler``: flags, configuration file, and the manager that runs it.

The configuration file is that of the manager, with a section ``coscheduler``; what it says of
webhooks and JobSets counts for nothing here. A flag that is given wins over the file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from jobsetpy.app import configuration as file
from jobsetpy.app import settings
from jobsetpy.app.configuration import Configuration, ConfigurationError
from jobsetpy.observability.logging import get_logger

if TYPE_CHECKING:
    from jobsetpy.coscheduler import CoschedulerSettings
    from jobsetpy.manager import Manager

LEASE_NAME: Final = "coscheduler.jobset.x-k8s.io"
METRICS_SERVICE: Final = "jobset-coscheduler-metrics-service"
QPS: Final = 2000.0
"""Requests a second: a pod takes two, and a cluster's groups may all come at once."""
BURST: Final = 4000

_TEXTS: Final = {
    "bind-address": ("ADDRESS", "of the extender, host:port or :port; default :9443"),
    "path-prefix": ("PATH", "in front of /bind and /preempt; default /ext"),
    "cert-dir": ("FOLDER", "with tls.crt, tls.key and ca.crt; default: certificates of its own"),
    "client-ca-file": ("FILE", "authorities of clients; default: ca.crt of the folder"),
    "service-name": ("NAME", "in the name of a certificate of its own"),
    "server-secret-name": ("NAME", "Secret that keeps certificates of its own"),
    "client-secret-name": ("NAME", "Secret that gets the scheduler's certificate"),
}
_DURATIONS: Final = {
    "permit-timeout": "how long an incomplete group's binds are held; default 30s",
    "permit-timeout-per-pod": "so much longer for each pod of the group; default 50ms",
    "max-permit-timeout": "but no longer than this; the scheduler's httpTimeout has to be longer; "
    "default 80s",
    "first-backoff": "how long a refused group's binds are refused, doubled each time; default 1s",
    "max-backoff": "but no longer than this; default 10s",
    "shutdown-grace": "how long binds of complete groups may take at the end; default 5s",
}
_NUMBERS: Final = {
    "groups-in-flight": "incomplete groups that are lifted at a time; default 4",
    "stuck-groups": "so many more that were refused three times; default 32",
    "concurrent-writes": "gates and binds that are written at a time; default 32",
    "max-held-binds": "binds that wait for their group at a time; default 8000",
    "backlog": "connections that wait to be accepted; default 4096",
}


def add_parser(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    """The subcommand; the caller adds the flags that all commands share."""
    parser = commands.add_parser(
        "coscheduler", help="run the coscheduler: gangs beside the stock kube-scheduler"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML)")
    settings.add_election_flags(parser)
    for name, (metavar, text) in _TEXTS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument(
        "--client-name",
        action="append",
        dest="client_names",
        metavar="NAME",
        help="common name of a client that is let in, may be given again; "
        "default system:kube-scheduler",
    )
    parser.add_argument(
        "--extra-dns-name",
        action="append",
        dest="extra_dns_names",
        metavar="NAME",
        help="more names, or IP addresses, for a certificate of its own; may be given again",
    )
    for name, text in _DURATIONS.items():
        parser.add_argument(
            f"--{name}", type=settings.positive_duration, metavar="DURATION", help=text
        )
    for name, text in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, metavar="NUMBER", help=text)
    parser.add_argument(
        "--ordinary-pods",
        nargs="?",
        const=True,
        type=settings.boolean,
        metavar="BOOL",
        help="bind pods of no group, when the scheduler asks for it; default true",
    )
    parser.add_argument(
        "--capacity-check",
        nargs="?",
        const=True,
        type=settings.boolean,
        metavar="BOOL",
        help="keep a group gated while there is no room for it; default true. "
        "False where a cluster autoscaler makes room: it does not see gated pods",
    )
    parser.add_argument(
        "--insecure-plain-http",
        action="store_true",
        help="no TLS and no client certificates: whoever connects can have pods bound",
    )
    parser.set_defaults(run=_run)
    return parser


def read(options: argparse.Namespace) -> Configuration:
    """The effective configuration of parsed flags.

    Raises:
        ConfigurationError: the file or a flag cannot be used; with every problem.
    """
    configuration = settings.read(options)
    given: dict[str, Any] = {}
    for name in (
        *_TEXTS,
        *_DURATIONS,
        *_NUMBERS,
        "client_names",
        "extra_dns_names",
        "ordinary_pods",
        "capacity_check",
    ):
        field = name.replace("-", "_")
        value = getattr(options, field)
        if value is not None:
            given[field] = tuple(value) if isinstance(value, list) else value
    section = attrs.evolve(configuration.coscheduler, **given)
    if "leaderElection.resourceName" not in configuration.given:
        election = attrs.evolve(configuration.leader_election, resource_name=LEASE_NAME)
        configuration = attrs.evolve(configuration, leader_election=election)
    connection: dict[str, Any] = {
        name: value
        for name, value in (("qps", QPS), ("burst", BURST))
        if f"clientConnection.{name}" not in configuration.given
        and getattr(options, f"kube_api_{name}") is None
    }
    connection_now = attrs.evolve(configuration.client_connection, **connection)
    configuration = attrs.evolve(configuration, client_connection=connection_now)
    problems = file.coscheduler_problems(section)
    if problems:
        raise ConfigurationError(problems)
    return attrs.evolve(configuration, coscheduler=section)


def coscheduler_settings(section: file.Coscheduler, *, plain_http: bool) -> CoschedulerSettings:
    """What the coscheduler takes, of the file's section.

    Args:
        section: valid.
        plain_http: no TLS.
    """
    from jobsetpy.coscheduler import CoschedulerSettings
    from jobsetpy.domain.coscheduling.state import Limits

    return CoschedulerSettings(
        bind_address=section.bind_address,
        path_prefix=section.path_prefix,
        service_name=section.service_name,
        extra_dns_names=section.extra_dns_names,
        server_secret=section.server_secret_name,
        client_secret=section.client_secret_name,
        certificate_dir=Path(section.cert_dir) if section.cert_dir else None,
        client_ca_file=Path(section.client_ca_file) if section.client_ca_file else None,
        client_names=section.client_names,
        plain_http=plain_http,
        limits=Limits(
            in_flight=section.groups_in_flight,
            stuck=section.stuck_groups,
            permit_s=section.permit_timeout,
            permit_per_pod_s=section.permit_timeout_per_pod,
            longest_permit_s=section.max_permit_timeout,
            first_backoff_s=section.first_backoff,
            longest_backoff_s=section.max_backoff,
        ),
        concurrent_writes=section.concurrent_writes,
        max_held=section.max_held_binds,
        backlog=section.backlog,
        ordinary_pods=section.ordinary_pods,
        capacity_check=section.capacity_check,
        grace_s=section.shutdown_grace,
    )


def _run(options: argparse.Namespace) -> int:
    from jobsetpy.app import main
    from jobsetpy.app.election import election_settings

    main.configure_logging(options)
    try:
        configuration = read(options)
        election = election_settings(configuration)
        metrics_tls = settings.metrics_tls(configuration, options, service=METRICS_SERVICE)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"jobsetpy coscheduler: {problem}", file=sys.stderr)  # noqa: T201
        return main.EXIT_CONFIGURATION
    section = configuration.coscheduler
    get_logger("coscheduler").info("configuration", **attrs.asdict(section))

    from jobsetpy import coscheduler

    made = coscheduler_settings(section, plain_http=options.insecure_plain_http)

    def setup(manager: Manager) -> None:
        coscheduler.setup(manager, made)

    return main.serve(configuration, options, setup, election, metrics_tls)
