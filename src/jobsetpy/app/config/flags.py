"""Flags: those of the settings, and those that say how the process starts.

A flag has no default of its own here: one that is not given must not override the file.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

import attrs

from jobsetpy.app.config import configuration as file
from jobsetpy.app.config.settings import SETTINGS, Command, Configuration
from jobsetpy.app.config.value_types import BOOLEAN, argument, shown
from jobsetpy.observability.logging import Format

_ZAP_LEVELS: Final = {"debug": "debug", "info": "info", "error": "error", "panic": "error"}


def add(parser: argparse.ArgumentParser, command: Command) -> None:
    """The flags of a command."""
    parser.add_argument("--kubeconfig", help="default: $KUBECONFIG, in-cluster, ~/.kube/config")
    parser.add_argument("--context", help="the kubeconfig's context to use")
    parser.add_argument("--log-format", choices=("auto", "json", "console"), help="default auto")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), help="default info"
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML)")
    defaults = Configuration(command=command)
    for setting in SETTINGS:
        if setting.flag and command.uses(setting):
            help_text = setting.help
            if "{}" in help_text:
                help_text = help_text.format(shown(setting.kind, defaults[setting.path]))
            parser.add_argument(
                setting.flag, dest=setting.path, help=help_text, **setting.kind.flag
            )
    if "featureGates" in command.sections:
        _add_gates_and_zap(parser)


def _add_gates_and_zap(parser: argparse.ArgumentParser) -> None:
    from jobsetpy.reconcilers.rules.features import gate_names, parse_gates

    gates = ",".join(f"{name}=true|false" for name in gate_names())
    parser.add_argument(
        "--feature-gates", type=argument(parse_gates), metavar="NAME=BOOL,...", help=gates
    )
    # Manifests made for today's controller may have these; they are taken in their sense, or for
    # nothing where they have none here.
    parser.add_argument("--zap-log-level", choices=[*_ZAP_LEVELS, "1", "2"], help=argparse.SUPPRESS)
    parser.add_argument("--zap-encoder", choices=("json", "console"), help=argparse.SUPPRESS)
    parser.add_argument("--zap-devel", help=argparse.SUPPRESS, **BOOLEAN.flag)
    for name in ("--zap-stacktrace-level", "--zap-time-encoding"):
        parser.add_argument(name, help=argparse.SUPPRESS)


def with_double_dashes(arguments: list[str]) -> list[str]:
    """Arguments with long flags of one dash (``-config``) given two."""
    return [
        f"-{each}" if len(each) > 2 and each[0] == "-" and each[1].isalpha() else each
        for each in arguments
    ]


def read(options: argparse.Namespace, command: Command) -> Configuration:
    """The effective configuration: the file, overridden by the flags that are given.

    Raises:
        ConfigurationError: the file or a flag cannot be used; with every problem.
    """
    given = vars(options)
    path = given.get("config")
    configuration = file.load(Path(path), command) if path else Configuration(command=command)
    by_flag = {
        setting.path: tuple(value) if isinstance(value, list) else value
        for setting in SETTINGS
        if (value := given.get(setting.path)) is not None
    }
    return file.checked(
        attrs.evolve(
            configuration,
            values={**configuration.values, **by_flag},
            feature_gates={**configuration.feature_gates, **(given.get("feature_gates") or {})},
        )
    )


def log_options(options: argparse.Namespace) -> tuple[Format, str]:
    """Format and level of log lines; our own flags win over those of today's controller."""
    level = options.log_level
    if level is None:
        zap = getattr(options, "zap_log_level", None)
        level = "info" if zap is None else _ZAP_LEVELS.get(zap, "debug")
    return options.log_format or getattr(options, "zap_encoder", None) or "auto", level
