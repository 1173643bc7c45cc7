"""The command line of the plugin: ``kubectl jobset COMMAND``, ``jobsetpy kubectl COMMAND``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from jobsetpy.extras import require
from jobsetpy.kubectl.errors import EXIT_ERROR, EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from jobsetpy.kubectl.kubeconfig import Options

COMMANDS: Final = {
    "create": "create a training that restarts in place, and show its progress until it ends",
    "list": "list JobSets: state, epoch, step, restarts, share of the time in which they ran",
    "status": "show what a JobSet does and waits for, with its Jobs and pods",
    "logs": "print the output of all ranks, across restarts and replaced pods",
    "restarts": "show the last restarts of a JobSet, as a table or a picture",
    "report": "show what JobSets' time went into, goodput, and what restarts cost",
    "restart": "restart a JobSet, or some of its Jobs; nothing is counted",
    "suspend": "take away a JobSet's pods until it is resumed",
    "resume": "let a suspended JobSet run",
    "scale": "change the number of pods of an elastic JobSet",
    "lint": "judge manifests as the webhooks would, without a cluster",
    "explain": "print the settings that apply to a JobSet, and where each comes from",
    "convert": "print manifests with restart in place in the place of torchrun and other launchers",
    "doctor": "see whether the cluster is fit for JobSets, and what would fix it",
}

_MODULES: Final = {
    "restart": "actions",
    "suspend": "actions",
    "resume": "actions",
    "scale": "actions",
    "list": "listing",
}
"""Where a command is, if not in the module of its name."""

OFFLINE: Final = frozenset({"convert", "create", "lint", "explain"})
"""Commands that see to a cluster themselves, if they need one."""

FLAGS: Final = (
    ("--namespace", "-n", "the namespace; that of the context when absent"),
    ("--context", None, "the kubeconfig context to use"),
    ("--kubeconfig", None, "path of the kubeconfig file"),
    ("--cluster", None, "the kubeconfig cluster to use"),
    ("--user", None, "the kubeconfig user to use"),
    ("--server", "-s", "address of the API server"),
    ("--token", None, "bearer token for the API server"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code.

    Args:
        argv: arguments without the program's name; those of the process when absent.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Python has none if it is closed (`>&-`).
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    try:
        require("kubectl jobset", "kubectl")
    except ModuleNotFoundError as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return EXIT_ERROR
    chosen = next((word for word in arguments if word in COMMANDS), "")
    # The program of a training has flags of its own, which are none of ours.
    end = arguments.index("--") if chosen == "create" and "--" in arguments else len(arguments)
    try:
        if not chosen and arguments:
            _suggest(arguments[0])
        options, unknown = parser(chosen).parse_known_args(arguments[:end])
        if unknown:
            hint = ": the program and its arguments go after --" if chosen == "create" else ""
            message = f"error: unrecognized arguments: {' '.join(unknown)}{hint}"
            raise CommandError(f"{message}; see kubectl jobset {chosen} --help", EXIT_USAGE)
        options.program = arguments[end + 1 :]
        return _run(options)
    except CommandError as problem:
        print(problem, file=sys.stderr)  # noqa: T201
        return problem.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads has seen enough
        sys.stderr.close()
        return EXIT_ERROR


def _suggest(word: str) -> None:
    """Refuse a word that is almost a command.

    Raises:
        CommandError: it is one.
    """
    import difflib

    if near := difflib.get_close_matches(word, COMMANDS, 1):
        raise CommandError(
            f"error: unknown command {word!r}: did you mean {near[0]!r}?", EXIT_USAGE
        )


def parser(chosen: str = "") -> argparse.ArgumentParser:
    """The parser, with the arguments of the ``chosen`` command only: others are not imported."""
    return parsers(chosen)[0]


def parsers(chosen: str) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser, and those of the commands by name, as :func:`parser`."""
    from jobsetpy import __version__

    top = argparse.ArgumentParser(prog="kubectl jobset", description="Look into JobSets.")
    top.add_argument("--version", action="version", version=f"kubectl-jobset {__version__}")
    _flags(top)
    commands = top.add_subparsers(
        title="commands", required=True, metavar="COMMAND", dest="command"
    )
    made = {}
    for name, text in COMMANDS.items():
        made[name] = commands.add_parser(name, help=text, description=f"{name}: {text}.")
        # kubectl's --server takes an address; that of lint asks whatever server there is.
        _flags(made[name], without="--server" if name in {"lint", "explain"} else "")
    if chosen:
        module(chosen).configure(made[chosen])
    return top, made


def module(name: str) -> Any:
    """The module of a command."""
    if name not in OFFLINE:
        import_msgspec()
    return importlib.import_module(f"jobsetpy.kubectl.{_MODULES.get(name, name)}")


def import_msgspec() -> None:
    """Import it without typing_extensions, which takes longer than the rest and may be missing."""
    wanted = "typing_extensions"
    if wanted in sys.modules:
        return
    sys.modules[wanted] = None  # type: ignore[assignment] # as if it was not installed
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[wanted]


def _flags(to: argparse.ArgumentParser, *, without: str = "") -> None:
    """The flags that every command has, before it and after it."""
    for flag, short, text in FLAGS:
        names = [name for name in (short, flag) if name and name != without]
        dest = flag.removeprefix("--")
        to.add_argument(
            *names, dest=dest, metavar=dest.upper(), default=argparse.SUPPRESS, help=text
        )
    form = "print JSON or YAML"
    choices = ("json", "yaml")
    to.add_argument("-o", "--output", choices=choices, default=argparse.SUPPRESS, help=form)


def _run(options: argparse.Namespace) -> int:
    command = module(options.command)
    options.output = getattr(options, "output", "")
    if options.command in OFFLINE:
        return int(command.run(options))
    from jobsetpy.kubectl import cluster

    target = target_options(options)
    long = any(getattr(options, name, False) for name in ("watch", "follow", "wait"))
    return int(cluster.run(target, os.environ, lambda to: command.run(to, options), long=long))


def target_options(options: argparse.Namespace) -> Options:
    """The flags that say which cluster is meant."""
    from jobsetpy.kubectl.kubeconfig import Options

    return Options(**{flag[2:]: getattr(options, flag[2:], "") for flag, _, _ in FLAGS})


if __name__ == "__main__":
    sys.exit(main())
