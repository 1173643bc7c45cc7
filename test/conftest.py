"""What every test needs of its surroundings."""

import asyncio


def pytest_sessionstart() -> None:
    """Keep the looptime plugin from making an event loop for tests that need none.

    It asks the policy for the loop before every test, and the policy, asked for the first time,
    makes one that nobody closes. Once told that there is none, it says so instead.
    """
    asyncio.set_event_loop(None)
