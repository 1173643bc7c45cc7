"""The command line: ``jobsetpy manager | coscheduler | agent | run MODULE:setup | crds``.

Subcommands import what they need only when they are chosen: the agent's start-up time is part of
every restart.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from jobsetpy.admission import EndpointCertificate
    from jobsetpy.app.configuration import Configuration
    from jobsetpy.manager import LeaderElectionSettings, Manager

EXIT_CONFIGURATION = 1
EXIT_USAGE = 2
EXIT_LEADERSHIP_LOST = 3


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit code.

    Args:
        argv: arguments without the program's name; those of the process when absent.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["agent"]:
        from jobsetpy.agent.main import main as agent_main

        return agent_main(arguments[1:])
    if arguments[:1] in (["manager"], ["coscheduler"]):
        from jobsetpy.app.settings import with_double_dashes

        arguments = with_double_dashes(arguments)
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser() -> argparse.ArgumentParser:
    import argparse

    from jobsetpy import __version__
    from jobsetpy.app import coscheduler, settings

    parser = argparse.ArgumentParser(prog="jobsetpy", description="JobSet for Kubernetes.")
    parser.add_argument("--version", action="version", version=f"jobsetpy {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    manager = commands.add_parser("manager", help="run the JobSet controllers")
    _add_manager_flags(manager, metrics_address=":8443", health_address=":8081")
    settings.add_flags(manager)
    manager.add_argument(
        "--webhooks", action="store_true", help="serve the admission webhooks as well"
    )
    manager.add_argument("--webhook-bind-address", metavar="ADDRESS", help="default :9443")
    manager.add_argument(
        "--webhook-cert-dir",
        metavar="FOLDER",
        help="folder with tls.crt and tls.key; default: certificates of the manager's own",
    )
    manager.add_argument(
        "--agent-image",
        metavar="IMAGE",
        help="in-place restart agent that the webhooks add to JobSets that ask for it",
    )
    manager.set_defaults(run=_manager)

    scheduling = coscheduler.add_parser(commands)
    _add_manager_flags(scheduling, metrics_address=":8443", health_address=":8081")

    # For --help only: main() hands "agent" over before it gets here.
    commands.add_parser("agent", help="run the in-place restart agent of a pod", add_help=False)

    run = commands.add_parser("run", help="run a controller of your own")
    run.add_argument("target", metavar="MODULE:FUNCTION", help="called with the Manager")
    _add_manager_flags(run, metrics_address="0", health_address="0")
    run.set_defaults(run=_run)

    crds = commands.add_parser("crds", help="print the custom resource definitions as YAML")
    crds.set_defaults(run=_crds)
    return parser


def _add_manager_flags(
    parser: argparse.ArgumentParser, *, metrics_address: str, health_address: str
) -> None:
    parser.add_argument("--kubeconfig", help="default: $KUBECONFIG, in-cluster, ~/.kube/config")
    parser.add_argument("--context", help="the kubeconfig's context to use")
    # No defaults here: a flag that is not given must not override the configuration file.
    parser.add_argument(
        "--kube-api-qps", type=float, help="default 500, of the coscheduler 2000; 0: no limit"
    )
    parser.add_argument("--kube-api-burst", type=int, help="default 500, of the coscheduler 4000")
    parser.add_argument(
        "--metrics-bind-address",
        metavar="ADDRESS",
        help=f"host:port, 0 switches it off; default {metrics_address}",
    )
    parser.add_argument(
        "--health-probe-bind-address",
        metavar="ADDRESS",
        help=f"host:port, 0 switches it off; default {health_address}",
    )
    parser.add_argument("--log-format", choices=("auto", "json", "console"), help="default auto")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="default info"
    )


def _manager(options: argparse.Namespace) -> int:
    from jobsetpy.app import parts, settings
    from jobsetpy.app.backend import choose_backend
    from jobsetpy.app.configuration import ConfigurationError
    from jobsetpy.app.election import election_settings
    from jobsetpy.app.wiring import add_jobset_controllers, add_webhooks

    configure_logging(options)
    try:
        configuration = settings.read(options)
        election = election_settings(configuration)
        metrics_tls = settings.metrics_tls(configuration, options)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"jobsetpy manager: {problem}", file=sys.stderr)  # noqa: T201
        return EXIT_CONFIGURATION
    settings.log(configuration, webhooks=options.webhooks)

    async def setup(manager: Manager) -> None:
        backend = await choose_backend(manager.replica_client, configuration.coscheduling)
        add_jobset_controllers(
            manager,
            **parts.controller_arguments(configuration),
            webhooks=options.webhooks,
            backend=backend,
        )
        if options.webhooks:
            given = settings.webhook_settings(configuration, options)
            add_webhooks(manager, marks=backend.marks, **given)

    return serve(configuration, options, setup, election, metrics_tls)


def _run(options: argparse.Namespace) -> int:
    import importlib

    module_name, colon, function_name = options.target.partition(":")
    if not colon:
        print(f"jobsetpy run: {options.target!r} is not MODULE:FUNCTION", file=sys.stderr)  # noqa: T201
        return EXIT_USAGE
    sys.path.insert(0, "")
    setup = importlib.import_module(module_name)
    for part in function_name.split("."):
        setup = getattr(setup, part)
    from jobsetpy.app import settings

    configure_logging(options)
    return serve(settings.without_file(options), options, setup)  # type: ignore[arg-type]


def configure_logging(options: argparse.Namespace) -> None:
    """Log as the flags say."""
    from jobsetpy.app import settings
    from jobsetpy.observability import logging

    log_format, level = settings.log_options(options)
    logging.configure(format=log_format, level=level)


def serve(
    configuration: Configuration,
    options: argparse.Namespace,
    setup: Callable[[Manager], Awaitable[None] | None],
    election: LeaderElectionSettings | None = None,
    metrics_tls: EndpointCertificate | None = None,
) -> int:
    """Run a manager until it is told to stop; the exit code."""
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_manage(configuration, options, setup, election, metrics_tls))


async def _manage(
    configuration: Configuration,
    options: argparse.Namespace,
    setup: Callable[[Manager], Awaitable[None] | None],
    election: LeaderElectionSettings | None,
    metrics_tls: EndpointCertificate | None,
) -> int:
    from jobsetpy import aio
    from jobsetpy.app import parts
    from jobsetpy.client import connect
    from jobsetpy.errors import LeadershipLostError
    from jobsetpy.manager import Manager
    from jobsetpy.observability.hooks import ClientMetrics

    code = 0
    client = await connect(
        kubeconfig=options.kubeconfig,
        context=options.context,
        **parts.client_limits(configuration),
        observer=ClientMetrics(),
    )
    try:
        manager = Manager(
            client,
            settings=parts.manager_settings(
                configuration, election=election, metrics_tls=metrics_tls
            ),
        )
        asked = setup(manager)
        if asked is not None:
            await asked
        async with aio.supervise() as tasks:
            tasks.start(_freeze_when_ready(manager), name="gc-freeze")
            await manager.run()
    except* LeadershipLostError:
        code = EXIT_LEADERSHIP_LOST
    finally:
        await client.aclose()
    return code


async def _freeze_when_ready(manager: Manager) -> None:
    """Keep the garbage collector from walking what will live as long as the process.

    Modules and the first lists are most of a manager's objects and never become garbage; looking
    at them again and again doubles the pause of a big relist.
    """
    import gc

    await manager.ready.wait()
    gc.collect()
    gc.freeze()


def _crds(_: argparse.Namespace) -> int:
    import yaml

    from jobsetpy.api.schema import jobset_crd

    text = yaml.safe_dump(jobset_crd(), sort_keys=False)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        sys.stderr.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
