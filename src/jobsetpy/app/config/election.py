"""Leader election of this manager: whether it takes part, and for which Lease."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from jobsetpy.app.config.settings import Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import LeaderElectionSettings, ManagerSettings
from jobsetpy.observability.logging import get_logger
from jobsetpy.serving.namespace import NAMESPACE_FILE, own_namespace


def election_settings(
    configuration: Configuration, *, namespace_file: Path = NAMESPACE_FILE
) -> LeaderElectionSettings | None:
    """Return the settings of leader election; ``None`` for a manager without it.

    Outside a pod, the namespace of the Lease is unknown. A manager that is started there without
    any setting of leader election, such as for a test, runs without it.

    Raises:
        ConfigurationError: the settings cannot be used.
    """
    if not configuration["leaderElection.leaderElect"]:
        return None
    lock = configuration["leaderElection.resourceLock"]
    if lock != "leases":
        msg = f"leaderElection.resourceLock: {lock!r}: only leases can be used"
        raise ConfigurationError([msg])
    namespace = own_namespace(namespace_file, outside="")
    if not (namespace or configuration["leaderElection.resourceNamespace"]):
        given = {*configuration.given, *configuration.values}
        if any(path.startswith("leaderElection") for path in given):
            msg = "leaderElection.resourceNamespace: to be given, since this is not a pod"
            raise ConfigurationError([msg])
        get_logger("manager").warning(
            "no leader election: this is no pod, and no namespace is given for the Lease"
        )
        return None
    try:
        return configuration.make(LeaderElectionSettings, namespace=namespace)
    except ValueError as error:
        raise ConfigurationError([f"leaderElection: {error}"]) from None


def with_lease_named_after(
    target: str, configuration: Configuration, settings: ManagerSettings
) -> ManagerSettings:
    """Settings whose Lease is called after ``MODULE:FUNCTION``, unless the file names it.

    Controllers of different people must not exclude each other because they named no Lease.
    """
    election = settings.leader_election
    name = "leaderElection.resourceName"
    if election is None or name in configuration.given or name in configuration.values:
        return settings
    words = re.findall("[a-z0-9]+", target.lower())
    return attrs.evolve(settings, leader_election=attrs.evolve(election, name="-".join(words)))


def with_lease_of_shard(settings: ManagerSettings) -> ManagerSettings:
    """Settings whose Lease is that of their shard: one leads for each, and shards do not wait."""
    election, shard = settings.leader_election, settings.shard
    if election is None or shard is None:
        return settings
    name = f"{election.name}-shard-{shard.index}-of-{shard.count}"
    return attrs.evolve(settings, leader_election=attrs.evolve(election, name=name))
