"""The configuration file: ``config.jobset.x-k8s.io/v1alpha1``, kind ``Configuration``.

Same fields, defaults and checks as users of JobSet have. Decoding is strict: a field that does not
exist, a value of another type and a key given twice are errors, each told with its path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from jobsetpy.app import _tls_names as tls_names
from jobsetpy.app.kinds import BOOLEAN, TEXT, ConfigurationError, expected
from jobsetpy.app.settings import (
    BY_PATH,
    MANAGER,
    METRICS_CERT_DIR,
    SETTINGS,
    Command,
    Configuration,
    snake_case,
)
from jobsetpy.domain.coscheduling.backends import COSCHEDULER
from jobsetpy.domain.features import gate_problems
from jobsetpy.observability.logging import get_logger

API_VERSION: Final = "config.jobset.x-k8s.io/v1alpha1"
KIND: Final = "Configuration"

_SECTIONS: Final = tuple(dict.fromkeys(each.section for each in SETTINGS if each.section))
_EMPTY_IS_ABSENT: Final = frozenset(
    {"webhook", "leaderElection", "metrics", "health", "internalCertManagement"}
)
"""Sections in which an empty text and a zero count as not given."""


def load(path: Path, command: Command = MANAGER) -> Configuration:
    """Read a file, YAML or JSON.

    Raises:
        ConfigurationError: it cannot be read, does not decode, or its values are not valid; with
            every problem of the stage that found one.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"cannot read {path}: {error}"]) from error
    return checked(parse(text, command))


def checked(configuration: Configuration) -> Configuration:
    """A configuration whose values are valid.

    Raises:
        ConfigurationError: they are not; with every problem.
    """
    problems = validate(configuration)
    if problems:
        raise ConfigurationError(problems)
    return configuration


def parse(text: str, command: Command = MANAGER) -> Configuration:
    """Decode a file's text strictly.

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
    values, gates = _decoded(content)
    if values.get("internalCertManagement.enable") is False:
        values.setdefault("metrics.certDir", METRICS_CERT_DIR)
    return Configuration(
        command=command, values=values, feature_gates=gates, given=frozenset(_paths(content))
    )


def validate(configuration: Configuration) -> list[str]:
    """What is wrong with the values; a line for each problem, with the field's path in front."""
    problems = [
        f"{path}: Invalid value: {why}"
        for path, value in configuration.values.items()
        if configuration["internalCertManagement.enable"] or not _is_internal(path)
        for why in BY_PATH[path].check(value)
    ]
    for shorter, longer in (("permitTimeout", "maxPermitTimeout"), ("firstBackoff", "maxBackoff")):
        paths = f"coscheduler.{shorter}", f"coscheduler.{longer}"
        if configuration.values.keys().isdisjoint(paths):
            continue
        least, most = (configuration[path] for path in paths)
        if not most >= least > 0:
            why = f"must not be shorter than {shorter}, and both longer than 0s"
            problems.append(f"coscheduler.{longer}: Invalid value: {why}")
    problems += tls_names.problems(
        configuration["tls.minVersion"], configuration["tls.cipherSuites"]
    )
    return problems + [f"featureGates: {why}" for why in gate_problems(configuration.feature_gates)]


def _is_internal(path: str) -> bool:
    return path.startswith("internalCertManagement.")


# -- decoding -------------------------------------------------------------------------------------


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


def _paths(content: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    for key, value in content.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from _paths(value, f"{prefix}{key}.")


def _decoded(content: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, bool]]:
    """Values that are given, by path, and feature gates."""
    values: dict[str, Any] = {}
    gates: dict[str, bool] = {}
    problems: list[str] = []
    for section in _SECTIONS:
        fields = _mapping(section, content, problems)
        for setting in SETTINGS:
            name = setting.path.partition(".")[2]
            if setting.section != section or name not in fields:
                continue
            try:
                value = setting.kind.decode(setting.path, fields.pop(name))
            except ConfigurationError as error:
                problems += error.problems
            else:
                if value or value is False or section not in _EMPTY_IS_ABSENT:
                    values[setting.path] = value
        problems += _unknown(fields, f"{section}.")
    for name, on in _mapping("featureGates", content, problems).items():
        try:
            path = f"featureGates[{name!r}]"
            gates[TEXT.decode(path, name)] = BOOLEAN.decode(path, on)
        except ConfigurationError as error:
            problems += error.problems
    problems += _unknown(content.keys() - {*_SECTIONS, "featureGates"})
    if problems:
        raise ConfigurationError(problems)
    return values, gates


def _mapping(name: str, content: Mapping[Any, Any], problems: list[str]) -> dict[Any, Any]:
    found = content.get(name, {})
    if isinstance(found, dict):
        return dict(found)
    problems += expected("a mapping", name, found).problems
    return {}


def _unknown(names: Iterable[Any], prefix: str = "") -> list[str]:
    told = ", ".join(f'unknown field "{prefix}{name}"' for name in sorted(map(str, names)))
    return [told] if told else []


# -- what is in effect ----------------------------------------------------------------------------


def log(configuration: Configuration) -> None:
    """Log what a manager runs with, and a warning for each part of the file without effect."""
    logger = get_logger("manager")
    content: dict[str, dict[str, Any]] = {"feature_gates": dict(configuration.feature_gates)}
    for setting in SETTINGS:
        idle = setting.target.startswith("WebhookSettings.") and not configuration["--webhooks"]
        if setting.section in configuration.command.sections and not idle:
            section, _, field = snake_case(setting.path).partition(".")
            content.setdefault(section, {})[field] = configuration[setting.path]
    logger.info("configuration", **content)
    for path in without_effect(configuration):
        logger.warning("this part of the configuration has no effect", field=path)


def without_effect(configuration: Configuration) -> list[str]:
    """Paths of what the file says and this manager does not act on."""
    idle = []
    if not configuration["--webhooks"]:
        idle += ["webhook", "internalCertManagement", "inPlaceRestart.agentImage"]
        idle += ["groupScheduling.image", "groupScheduling.agentImage"]
    elif configuration["internalCertManagement.enable"]:
        idle.append("webhook.certDir")  # own certificates are kept in memory
    if not configuration.features.coscheduling:
        idle.append("coscheduling")
    elif configuration["coscheduling.backend"] != COSCHEDULER:
        idle += ["coscheduling.schedulerName", "coscheduling.memberResource"]
    return [path for path in idle if path in configuration.given]
