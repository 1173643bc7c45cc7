"""A process that runs one manager."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import sys

import uvloop

from jobsetpy import aio
from jobsetpy.app import wiring
from jobsetpy.app.config import flags
from jobsetpy.app.config.settings import Command, Configuration
from jobsetpy.app.config.value_types import ConfigurationError
from jobsetpy.app.garbage import collect_garbage
from jobsetpy.app.user_programs import Setup, ending, report
from jobsetpy.client import connect
from jobsetpy.client._connect import namespace_of_context
from jobsetpy.errors import LeadershipLostError
from jobsetpy.manager import Manager, ManagerSettings
from jobsetpy.observability import logging
from jobsetpy.observability.hooks import ClientMetrics

EXIT_CONFIGURATION = 1
EXIT_FAILED = 1
EXIT_LEADERSHIP_LOST = 3


def configured(
    options: argparse.Namespace, command: Command
) -> tuple[Configuration, ManagerSettings]:
    """Configure logging by the flags, and read the configuration.

    Raises:
        SystemExit: the configuration cannot be used; every problem is reported.
    """
    log_format, level = flags.log_options(options)
    logging.configure(format=log_format, level=level)
    try:
        configuration = flags.read(options, command)
        target = getattr(options, "target", "")
        context = functools.partial(
            namespace_of_context, options.kubeconfig, options.context, os.environ
        )
        return configuration, wiring.manager_settings(configuration, target, context)
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"jobsetpy {command.name}: {problem}", file=sys.stderr)  # noqa: T201
        raise SystemExit(EXIT_CONFIGURATION) from None


def serve(
    options: argparse.Namespace,
    configuration: Configuration,
    settings: ManagerSettings,
    setup: Setup,
) -> int:
    """Run a manager until SIGTERM; return the exit code.

    Any other end is reported in one sentence on standard error, after a traceback with the user's
    own frames if their program raised an exception.

    Args:
        options: parsed flags, with the address of the API server.
        configuration: the configuration as read.
        settings: settings of the manager.
        setup: adds controllers to the manager.
    """
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_manage(options, configuration, settings, setup))
    except BaseException as error:
        ends = ending(error)
        if ends is None:
            raise
        report(configuration.command.name, *ends)
        return EXIT_FAILED


async def _manage(
    options: argparse.Namespace,
    configuration: Configuration,
    settings: ManagerSettings,
    setup: Setup,
) -> int:
    code = 0
    requests = ClientMetrics()
    client = await connect(
        kubeconfig=options.kubeconfig,
        context=options.context,
        qps=configuration["clientConnection.qps"],
        burst=configuration["clientConnection.burst"],
        observer=requests,
    )
    requests.host = client.transport.host
    try:
        manager = Manager(client, settings=settings)
        asked = setup(manager)
        if asked is not None:
            await asked
        if getattr(options, "dev", False):
            from jobsetpy.app import dev

            await dev.install(manager, client)
        async with aio.supervise() as tasks:
            garbage = collect_garbage(manager.ready, more=manager if settings.shards else None)
            tasks.start(garbage, name="garbage")
            await manager.run()
    except* LeadershipLostError:
        code = EXIT_LEADERSHIP_LOST
    finally:
        await client.aclose()
    return code
