"""The command line: ``jobsetpy manager``, ``agent``, ``run MODULE:setup`` and others.

Subcommands import what they need only when they are chosen: the agent's start-up time is part of
every restart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from jobsetpy.manager import Manager

EXIT_USAGE = 2

COMMANDS = {
    "manager": "run the JobSet controllers",
    "coscheduler": "run the coscheduler: gangs next to the stock kube-scheduler",
    "agent": "run the in-place restart agent of a pod",
    "run": "run a controller of your own",
    "crds": "print the CRDs as YAML",
    "webhooks": "print what has the webhooks of a controller called, as YAML",
    "rbac": "print the roles that a controller needs, read out of its code, as YAML",
    "kubectl": "look into JobSets; the same as the plugin, kubectl jobset",
}

_EXTRAS = {"manager": "manager", "coscheduler": "manager", "run": "runtime", "crds": "runtime"}
"""Extra that a command needs; agent and plugin check theirs themselves."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; the exit code.

    Args:
        argv: arguments without the program's name; those of the process when absent.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["agent"]:
        from jobsetpy.agent.main import main as agent_main

        return agent_main(arguments[1:])
    if arguments[:1] == ["kubectl"]:
        from jobsetpy.kubectl.main import main as plugin_main

        return plugin_main(arguments[1:])
    if arguments and _refused(arguments[0]):
        return EXIT_USAGE
    if arguments[:1] in (["manager"], ["coscheduler"]):
        from jobsetpy.app.config.flags import with_double_dashes

        arguments = with_double_dashes(arguments)
    options = _parser(arguments[:1]).parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    return run(options)


def _parser(chosen: Sequence[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser, with the flags of the ``chosen`` commands only."""
    import argparse

    from jobsetpy import __version__

    parser = argparse.ArgumentParser(prog="jobsetpy", description="JobSet for Kubernetes.")
    parser.add_argument("--version", action="version", version=f"jobsetpy {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        # These are for --help only: main() hands them over before it gets here.
        command = commands.add_parser(name, help=text, add_help=name not in {"agent", "kubectl"})
        command.set_defaults(run=_RUN.get(name))
        _add_arguments(name, command)
        if name in chosen and name in {"manager", "coscheduler", "run"}:
            from jobsetpy.app.config import flags, settings

            flags.add(command, getattr(settings, name.upper()))
    return parser


def _add_arguments(name: str, command: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that are no settings."""
    match name:
        case "run":
            command.add_argument(
                "target", metavar="MODULE:FUNCTION", help="called with the Manager"
            )
            command.add_argument(
                "--dev",
                action="store_true",
                help="apply the CRDs of the program's kinds, register its webhooks at this "
                "machine, and run it again when a file changes",
            )
        case "crds":
            command.add_argument(
                "classes",
                metavar="MODULE:CLASS",
                nargs="*",
                help="resources of your own (runtime.resource); of several versions of a kind the "
                "last is stored; JobSet when absent",
            )
        case "rbac":
            command.add_argument("modules", metavar="MODULE", nargs="+", help="PACKAGE.* is all")
            command.add_argument("--name", required=True, help="of the account and the roles")
            command.add_argument("--namespace", default="default", help="where the manager runs")
            command.add_argument(
                "--watch-namespace",
                action="append",
                default=[],
                metavar="NAMESPACE",
                help="as --namespace of jobsetpy run: roles there, not for the whole cluster",
            )
            command.add_argument("--leader-elect", action="store_true", help="for election, too")
        case "webhooks":
            command.add_argument("target", metavar="MODULE:FUNCTION", help="as of jobsetpy run")
            command.add_argument("--namespace", default="default", help="where the manager runs")
            command.add_argument("--url", default="", help="call this instead of a Service")
        case _:
            pass


def _refused(command: str) -> bool:
    """Return True if libraries of a command are missing, after a message on standard error."""
    extra = _EXTRAS.get(command)
    if extra is None:
        return False
    from jobsetpy.extras import require

    try:
        require(f"jobsetpy {command}", extra)
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return True
    return False


def _manager(options: argparse.Namespace) -> int:
    from jobsetpy.app import process, wiring
    from jobsetpy.app.backend import watch_backend
    from jobsetpy.app.config import configuration as file
    from jobsetpy.app.config import settings
    from jobsetpy.reconcilers.coscheduling.backends import SchedulerFields
    from jobsetpy.reconcilers.execution.definition import Definition

    configuration, manager_settings = process.configured(options, settings.MANAGER)
    file.log(configuration)

    async def setup(manager: Manager) -> None:
        marks = configuration.make(SchedulerFields)
        backend = await watch_backend(manager, marks, configuration.features)
        definition = Definition(manager.replica_client, manager.clock)
        await definition.check()
        wiring.add_jobset_controllers(manager, configuration, backend, definition)
        if configuration["--webhooks"]:
            from jobsetpy import admission  # 10 MB that a manager without need not carry

            admission.setup(manager, wiring.webhook_settings(configuration, backend))

    return process.serve(options, configuration, manager_settings, setup)


def _coscheduler(options: argparse.Namespace) -> int:
    from jobsetpy import coscheduler
    from jobsetpy.app import process, wiring
    from jobsetpy.app.config import settings
    from jobsetpy.observability.logging import get_logger

    configuration, manager_settings = process.configured(options, settings.COSCHEDULER)
    section = configuration.section("coscheduler")
    shown = {settings.snake_case(name): value for name, value in section.items()}
    get_logger("coscheduler").info("configuration", **shown)
    made = wiring.coscheduler_settings(configuration)

    def setup(manager: Manager) -> None:
        coscheduler.setup(manager, made)

    return process.serve(options, configuration, manager_settings, setup)


def _run(options: argparse.Namespace) -> int:
    from jobsetpy.app import process, user_programs
    from jobsetpy.app.config import settings

    if options.dev:
        from jobsetpy.app import dev

        if not dev.is_child():
            return dev.supervise(options)
        dev.choose_address(options)
    try:
        setup = user_programs.load(options.target)
    except user_programs.ProgramError as error:
        return _refuse("run", error)
    configuration, manager_settings = process.configured(options, settings.RUN)
    setup = user_programs.checked(setup, options.target)
    return process.serve(options, configuration, manager_settings, setup)


def _crds(options: argparse.Namespace) -> int:
    import yaml

    from jobsetpy.api.schema import crds_of, jobset_crd
    from jobsetpy.app.user_programs import ProgramError, named

    try:
        classes = [named(target, "MODULE:CLASS") for target in options.classes]
        definitions = crds_of(classes) if classes else [jobset_crd()]
    except (ProgramError, TypeError, ValueError) as error:
        return _refuse("crds", error)
    return _print(yaml.safe_dump_all(definitions, sort_keys=False, width=100))


def _webhooks(options: argparse.Namespace) -> int:
    import json  # a copy by which nothing is shared: no anchors in the YAML

    import yaml

    from jobsetpy.app.user_programs import ProgramError, load
    from jobsetpy.app.webhook_manifests import served_by, webhook_manifests

    try:
        served = served_by(load(options.target))
    except (ProgramError, AttributeError, TypeError, ValueError) as error:
        return _refuse("webhooks", error)
    manifests = webhook_manifests(served, namespace=options.namespace, url=options.url)
    return _print(yaml.safe_dump_all(json.loads(json.dumps(manifests)), sort_keys=False, width=100))


def _rbac(options: argparse.Namespace) -> int:
    from jobsetpy.app.rbac import UnknownClassError, manifests

    sys.path.insert(0, "")
    try:
        text = manifests(
            options.modules,
            name=options.name,
            namespace=options.namespace,
            watched=options.watch_namespace,
            leader_elect=options.leader_elect,
        )
    except (ImportError, AttributeError, UnknownClassError) as error:
        return _refuse("rbac", error)
    return _print(text)


def _refuse(command: str, error: Exception) -> int:
    from jobsetpy.app.user_programs import report

    report(command, error, getattr(error, "cause", None))
    return EXIT_USAGE


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has seen enough
        sys.stderr.close()
    return 0


_RUN = {
    "manager": _manager,
    "coscheduler": _coscheduler,
    "run": _run,
    "crds": _crds,
    "webhooks": _webhooks,
    "rbac": _rbac,
}

if __name__ == "__main__":
    sys.exit(main())
