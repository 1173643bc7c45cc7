"""At most one contender leads at any time, and in the end one does, with any network.

Contenders run in virtual time with one Lease. Their requests, and the answers, are delayed, lost or
refused at random; their clocks run at different speeds; some stop, or are cut off for a while. The
Lease is deleted from time to time, even while a new contender competes. All have the same name, and
their wall clocks jump by years.

With shards, each has at most one owner, and only one number of shards is in use.
"""

import asyncio
import itertools
import random
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from jobsetpy import aio
from jobsetpy.client import Client
from jobsetpy.errors import LeadershipLostError, StreamBrokenError
from jobsetpy.manager import LeaderElectionSettings, _leader, _shards
from jobsetpy.manager._leader import LeaderElector
from jobsetpy.manager._shards import ShardElector, lease_of
from jobsetpy.testing import World

pytestmark = pytest.mark.looptime

LEASES = "leases.coordination.k8s.io"
TIMES = {"lease_duration_s": 15.0, "renew_deadline_s": 10.0, "retry_period_s": 2.0}


@pytest.fixture(autouse=True)
def same_names(monkeypatch):
    """Replace the random part of identities, so that a seed always gives the same run."""
    numbers = itertools.count()
    for module in (_leader, _shards):
        monkeypatch.setattr(module, "unique", lambda name: f"{name}_{next(numbers)}", raising=False)


class Network:
    """The network between a contender and the API server."""

    def __init__(self, world, chance):
        self.inner = world.transport()
        self.chance = chance
        self.bad = 0.3
        self.cut = False

    async def request(self, request):
        raise AssertionError("elections have connections of their own")

    @asynccontextmanager
    async def stream(self, request):
        await self._travel()
        async with self.inner.stream(request) as answer:
            await self._travel()
            yield answer

    async def _travel(self):
        if self.cut:
            await asyncio.sleep(3600)
        await asyncio.sleep(self.chance.choice([0.001, 0.01, 0.1]))
        if self.chance.random() < self.bad:
            await asyncio.sleep(self.chance.choice([0, 0.5, 2, 12]))
            if self.chance.random() < 0.5:
                raise StreamBrokenError("lost on the way")

    async def refresh_credentials(self):
        raise AssertionError("no credentials are refused")

    async def aclose(self):
        pass


class Contender:
    """A process that starts again when it has lost or stopped; one of ``count`` shards."""

    def __init__(self, world, chance, number, count=1):
        self.chance = chance
        self.number = number
        self.count = count
        self.network = Network(world, chance)
        # Up to 5 % fast or slow: more than real clocks, less than the durations allow for.
        self.speed = chance.uniform(0.95, 1.05)
        self.elector = None
        self.lives = 0

    def clock(self):
        return asyncio.get_running_loop().time() * self.speed

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=self.chance.uniform(-1e5, 1e5))

    async def run(self):
        while True:
            self.lives += 1
            settings = LeaderElectionSettings(
                namespace="default", name="x", identity="manager", **TIMES
            )
            client = Client(self.network, rand=self.chance.random).unpooled()
            how = {"clock": self.clock, "now": self.now, "rand": self.chance.random}
            if self.count == 1:
                self.elector = LeaderElector(client, settings, **how)
            else:
                self.elector = ShardElector(client, settings, self.count, **how)
            self.elector.contend()
            try:
                async with asyncio.timeout(self.chance.choice([40, 90, 400])):
                    async with self.elector.running():
                        await asyncio.Event().wait()
            except (LeadershipLostError, TimeoutError):
                await asyncio.sleep(self.chance.uniform(0, 2))

    @property
    def may_write(self):
        return self.elector is not None and self.elector.fence.remaining_s() > 0

    @property
    def share(self):
        """Number of shards, and the shard that it owns."""
        return self.count, self.elector.assignment.index if self.count > 1 else 0


def chance_of(seed, number):
    """Return the random numbers of one contender.

    Each has its own: tasks that end at the same time do so in any order, since asyncio keeps them in
    sets, and a seed would not always give the same run.
    """
    return random.Random(f"{seed} {number}")


async def trouble(world, contenders, chance):
    """Cut off a contender from time to time, mostly the leader, or delete a Lease."""
    names = ["x", *(lease_of("x", 0, one.count) for one in contenders if one.count > 1)]
    while True:
        name = chance.choice(names)
        if world.get(LEASES, name) is not None and chance.random() < 0.4:
            world.delete(LEASES, name)
        await asyncio.sleep(chance.uniform(5, 20))
        leaders = [one for one in contenders if one.may_write and chance.random() < 0.7]
        one = chance.choice(leaders or contenders)
        one.network.cut = True
        await asyncio.sleep(chance.choice([1, 8, 12, 20, 40]))
        one.network.cut = False


@pytest.mark.parametrize("seed", range(8))
async def test_at_most_one_leads_and_one_does_in_the_end(seed):
    """Two fences are never open; with a good network one contender leads and stays leader."""
    chance = random.Random(seed)
    world = World()
    contenders = [
        Contender(world, chance_of(seed, number), number) for number in range(chance.choice([2, 3]))
    ]
    led = 0
    async with aio.supervise() as tasks:
        for one in contenders:
            tasks.start(one.run(), name="contender")
        troubling = tasks.start(trouble(world, contenders, chance), name="trouble")
        for _ in range(2500):
            await asyncio.sleep(0.1)
            writers = sum(one.may_write for one in contenders)
            assert writers <= 1
            led += writers
        troubling.cancel()
        for one in contenders:
            one.network.bad, one.network.cut = 0.0, False
        await asyncio.sleep(25)
        after = [sum(one.may_write for one in contenders)]
        for _ in range(150):
            await asyncio.sleep(0.1)
            after.append(sum(one.may_write for one in contenders))

    assert led > 250  # of 2,500, in spite of all faults
    assert set(after) <= {0, 1}
    assert sum(after) > 75


@pytest.mark.parametrize("seed", range(3))
async def test_shard_has_one_owner_and_one_number_of_shards_is_in_use(seed):
    """Managers with two and three shards and without compete; in the end all shards of one number work."""
    chance = random.Random(seed)
    world = World()
    counts = [2, 2, 2, 3, 3, 3, 1]
    contenders = [
        Contender(world, chance_of(seed, number), number, each)
        for number, each in enumerate(counts)
    ]
    seen = set()
    async with aio.supervise() as tasks:
        for one in contenders:
            tasks.start(one.run(), name="contender")
        troubling = tasks.start(trouble(world, contenders, chance), name="trouble")
        for _ in range(1500):
            await asyncio.sleep(0.1)
            shares = [one.share for one in contenders if one.may_write]
            assert len(shares) == len(set(shares))
            assert len({count for count, _ in shares}) <= 1
            seen.update(shares)
        troubling.cancel()
        for one in contenders:
            one.network.bad, one.network.cut = 0.0, False
        full = 0
        for _ in range(500):
            await asyncio.sleep(0.1)
            shares = [one.share for one in contenders if one.may_write]
            assert len(shares) == len(set(shares))
            full += bool(shares) and len(shares) == shares[0][0]

    assert len(seen) >= 2
    assert full > 150
