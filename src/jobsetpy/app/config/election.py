"""Leader election of this manager: whether it takes part, and for which Lease."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from jobsetpy.app.config.settings import Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.manager import LeaderElectionSettings, ManagerSettings
from jobsetpy.observability.logging import get_logger

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def election_settings(
    configuration: Configuration, *, namespace_file: Path = NAMESPACE_FILE
) -> LeaderElectionSettings | None:
    """How leader election is to go; ``None`` for a manager that works without.

    Outside a pod there is no namespace to take the Lease from. A manager that is started there for
    a test or for a look, with nothing said of elections, works at once.

    Raises:
        ConfigurationError: what is asked for is not possible.
    """
    if not configuration["leaderElection.leaderElect"]:
        return None
    lock = configuration["leaderElection.resourceLock"]
    if lock != "leases":
        msg = f"leaderElection.resourceLock: {lock!r}: only leases can be used"
        raise ConfigurationError([msg])
    namespace = _namespace_of_the_pod(namespace_file)
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


def _namespace_of_the_pod(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
