"""The configuration file: ``config.jobset.x-k8s.io/v1alpha1``, kind ``Configuration``.

Same fields, defaults and checks as users of JobSet have. Decoding is strict: a field that does not
exist, a value of another type and a key given twice are errors, each reported with its path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from jobsetpy.app.config import tls_names
from jobsetpy.app.config.settings import (
    BY_PATH,
    MANAGER,
    METRICS_CERT_DIR,
    SETTINGS,
    Command,
    Configuration,
    Setting,
    snake_case,
)
from jobsetpy.app.config.value_types import BOOLEAN, TEXT, ConfigurationError, expected
from jobsetpy.observability.logging import get_logger

API_VERSION: Final = "config.jobset.x-k8s.io/v1alpha1"
KIND: Final = "Configuration"

Decoder = Callable[[Any, Any], Any]

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
    if problems := validate(configuration):
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
    """Return one line for each invalid value, with the path of the field in front."""
    own_certificates = configuration["internalCertManagement.enable"]
    problems = [
        f"{path}: Invalid value: {why}"
        for path, value in configuration.values.items()
        if own_certificates or not path.startswith("internalCertManagement.")
        for why in BY_PATH[path].check(value)
    ]
    problems += tls_names.problems(
        configuration["tls.minVersion"], configuration["tls.cipherSuites"]
    )
    if configuration.feature_gates:
        from jobsetpy.reconcilers.rules.features import gate_problems

        whys = gate_problems(configuration.feature_gates)
        problems += [f"featureGates: {why}" for why in whys]
    return problems


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
    # Imported here: a manager without a file need not carry it.
    from cattrs import ClassValidationError, Converter
    from cattrs.gen import make_dict_structure_fn, override

    converter = Converter()

    def strict(name: str, fields: Mapping[str, Decoder]) -> Decoder:
        """How a mapping is decoded that has no other fields than these."""
        cls = attrs.make_class(name, {each: attrs.field(default=None) for each in fields})
        hooks: dict[str, Any] = {each: override(struct_hook=hook) for each, hook in fields.items()}
        structure: Callable[..., Any] = make_dict_structure_fn(
            cls, converter, _cattrs_forbid_extra_keys=True, **hooks
        )

        def decode(value: Any, _: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise expected("a mapping", name, value)
            return attrs.asdict(structure(value, cls))

        return decode

    fields: dict[str, dict[str, Decoder]] = {}
    for each in SETTINGS:
        if each.section:
            name = each.path.partition(".")[2]
            fields.setdefault(each.section, {})[name] = functools.partial(_decode, each)
    sections = {name: strict(name, each) for name, each in fields.items()}
    try:
        found = strict("", {"featureGates": _gates, **sections})(content, None)
    except ClassValidationError as error:
        raise ConfigurationError(list(_problems(error))) from None
    values = {
        f"{section}.{name}": value
        for section in sections
        for name, value in (found[section] or {}).items()
        if value is not None and (value or value is False or section not in _EMPTY_IS_ABSENT)
    }
    return values, found["featureGates"] or {}


def _decode(setting: Setting, value: Any, _: Any) -> Any:
    return setting.kind.decode(setting.path, value)


def _gates(value: Any, _: Any) -> dict[str, bool]:
    if not isinstance(value, dict):
        raise expected("a mapping", "featureGates", value)
    return {
        TEXT.decode(path, name): BOOLEAN.decode(path, on)
        for name, on in value.items()
        for path in (f"featureGates[{name!r}]",)
    }


def _problems(error: BaseException) -> Iterator[str]:
    """A line for each thing that is wrong, with its path."""
    from cattrs import ForbiddenExtraKeysError

    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _problems(each)
    elif isinstance(error, ForbiddenExtraKeysError):
        prefix = f"{error.cl.__name__}." if error.cl.__name__ else ""
        names = (f"{prefix}{name}" for name in sorted(map(str, error.extra_fields)))
        yield ", ".join(f'unknown field "{name}"' for name in names)
    elif isinstance(error, ConfigurationError):
        yield from error.problems
    else:
        yield str(error)


# -- what is in effect ----------------------------------------------------------------------------


def log(configuration: Configuration) -> None:
    """Log what a manager runs with, and a warning for each part of the file without effect."""
    logger = get_logger("manager")
    content: dict[str, dict[str, Any]] = {"feature_gates": dict(configuration.feature_gates)}
    for setting in SETTINGS:
        of_webhooks = ("WebhookSettings.", "GroupBarrier.", "ContainerDefaults.")
        idle = setting.target.startswith(of_webhooks) and not configuration["--webhooks"]
        if setting.section in configuration.command.sections and not idle:
            section, _, field = snake_case(setting.path).partition(".")
            content.setdefault(section, {})[field] = configuration[setting.path]
    logger.info("configuration", **content)
    for path in without_effect(configuration):
        logger.warning("this part of the configuration has no effect", field=path)


def without_effect(configuration: Configuration) -> list[str]:
    """Paths of what the file says and this manager does not act on."""
    from jobsetpy.reconcilers.coscheduling.backends import AUTO, COSCHEDULER

    idle = []
    if not configuration["--webhooks"]:
        idle += ["webhook", "internalCertManagement", "inPlaceRestart.agentImage"]
        idle += ["inPlaceRestart.defaults"]
        idle += ["groupScheduling.image", "groupScheduling.agentImage", "injectedContainers"]
    elif configuration["internalCertManagement.enable"]:
        idle.append("webhook.certDir")  # own certificates are kept in memory
    if not configuration.features.coscheduling:
        idle.append("coscheduling")
    elif configuration["coscheduling.backend"] not in {AUTO, COSCHEDULER}:
        marks = ("schedulerName", "memberResource")
        idle += [f"coscheduling.{each}" for each in marks]
    return [path for path in idle if path in configuration.given]
