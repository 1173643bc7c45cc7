"""Parts that a pod's environment asks for; only these are imported, since start-up counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from jobsetpy.agent.protocol.log import Log
from jobsetpy.agent.supervisor import pace
from jobsetpy.agent.supervisor.part import Part, Services
from jobsetpy.agent.supervisor.worker.settings import worker_environs
from jobsetpy.agent.supervisor.worker.starter import Starter

if TYPE_CHECKING:
    from jobsetpy.agent.supervisor.spare_pod import SparePod
    from jobsetpy.agent.supervisor.standby.process import StandbyRules


class Parts(NamedTuple):
    """Parts of one pod's supervisor.

    Args:
        starter: starts the worker's processes.
        optional: the optional parts, in the order in which they are called.
    """

    starter: Starter
    optional: Sequence[Part]


def make_parts(
    services: Services,
    common: dict[bytes, bytes],
    standby: StandbyRules | None,
    *,
    memory_file: Callable[[str, str], str],
) -> Parts:
    """Return the parts that the environment asks for.

    Args:
        services: what they share.
        common: variables of the worker's processes.
        standby: settings of standby processes; ``None`` for none.
        memory_file: returns the path of a file in memory, from a variable and a name.

    Raises:
        ConfigurationError: a value is missing or cannot be used.
    """
    environ = services.environ
    spare: SparePod | None = None
    environs: Sequence[Mapping[bytes, bytes]]
    if not environ.get("WORKER_SEATS"):
        environs = worker_environs(common, environ)
    else:
        from jobsetpy.agent.supervisor import ranks, spare_pod

        hosts_file = memory_file(ranks.HOSTS_VARIABLE, "hosts")
        seats = ranks.SeatEnvirons(ranks.load_place(environ), common, environ, hosts_file)
        spare = spare_pod.SparePod(services, seats)
        environs = seats.parked
    is_parked = (lambda: False) if spare is None else spare.is_parked
    on_change = (lambda: None) if spare is None else spare.report_standby
    starter = Starter(services.processes, environs)
    parts: list[Part] = []
    if standby is not None:
        from jobsetpy.agent.supervisor.standby.starter import StandbyStarter

        starter = StandbyStarter(
            services, environs, standby, is_parked=is_parked, on_change=on_change
        )
        parts.append(starter)
    parts += _features(services, environs[0], is_parked=is_parked)
    if spare is None:
        return Parts(starter, parts)
    spare.connect(starter, tuple(parts))
    # First: whether the pod has a seat decides before its machine is checked for a worker.
    return Parts(starter, [spare, *parts])


def _features(
    services: Services,
    environ: Mapping[bytes, bytes],
    *,
    is_parked: Callable[[], bool],
) -> list[Part]:
    parts: list[Part] = []
    given = services.environ
    if pace.is_first(services.settings.pod_name):
        parts.append(pace.Pace(services.progress, services.log, services.reporter.annotate))
    if given.get("PROGRESS_PATTERN") or given.get("LOG_RULES"):
        from jobsetpy.agent.supervisor.output import part as output

        parts.append(output.Output(services, output.load(given)))
    health_times = given.get("HEALTH_SECONDS") or given.get("HEALTH_INTERVAL_SECONDS")
    if given.get("HEALTH_COMMAND", "").strip() or health_times:
        from jobsetpy.agent.supervisor import health

        parts.append(health.Health(services, environ, health.load(given), is_parked=is_parked))
    if given.get("HEARTBEAT_SECONDS"):
        from jobsetpy.agent.supervisor.heartbeats import rules as ring_rules

        rules = ring_rules.load(given, services.settings.jobset_name)
        if rules is not None:
            from jobsetpy.agent.supervisor.heartbeats.part import Heartbeats

            parts.append(Heartbeats(services, rules))
        else:
            services.log(
                "no heartbeats: the pod was added to the group later, and its ring has a fixed size"
            )
    return parts


def launched(
    command: list[str], environ: Mapping[str, str], log: Log
) -> tuple[list[str], StandbyRules | None]:
    """Return the worker's command, with the preloading launcher, and the standby settings.

    Raises:
        ConfigurationError: a value cannot be used.
    """
    if not environ.get("WORKER_STANDBY") and not environ.get("WORKER_PRELOAD"):
        return command, None
    from jobsetpy.agent.supervisor.standby import process as standby

    rules = standby.load(environ)
    if rules is None or not rules.modules:
        return command, rules
    with_launcher = standby.with_launcher(command, rules.modules, standby.learned_file(environ))
    if not isinstance(with_launcher, str):
        return with_launcher, rules
    if rules.optional:
        return command, msgspec.structs.replace(rules, modules="")
    log("nothing can be preloaded, and there is no standby", level="warning", why=with_launcher)
    return command, None
