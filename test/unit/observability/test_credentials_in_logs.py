"""Tokens and keys are removed from log lines of all sources."""

import asyncio
import io
import logging

import pytest

from jobsetpy.api.meta import ObjectKey
from jobsetpy.client import error_from_response
from jobsetpy.controller import Controller, Request
from jobsetpy.observability.logging import configure, get_logger, without_credentials

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im5vbmUifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl-_x"
OPAQUE = "s3cr3t-T0ken_with.dots~and+more/=="
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAK\nAAAA\n-----END RSA PRIVATE KEY-----"


def raised(message):
    """An error with a stack."""
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        return error


def by_value():
    get_logger("t").error("failed", headers={"Authorization": f"Bearer {OPAQUE}"}, token=JWT)


def by_text():
    get_logger("t").warning(f"got {JWT} and Authorization: Basic {OPAQUE}, bearer {OPAQUE}")


def by_stack():
    get_logger("t").error("failed", exc_info=raised(f"cannot use Bearer {OPAQUE}: {KEY}"))


def by_library():
    logging.getLogger("aiohttp").warning("headers: %s", {"authorization": f"BEARER {OPAQUE}"})


def by_answer():
    body = f'{{"message": "token {JWT} has expired", "reason": "Unauthorized"}}'.encode()
    error = error_from_response(401, {}, body, verb="get", target="pods ns/a")
    get_logger("t").error("reconcile failed", error=str(error), exc_info=error)


def by_key():
    get_logger("t").info("read", content=[{"tls.key": KEY}])


@pytest.mark.parametrize("format_", ["json", "console"])
@pytest.mark.parametrize(
    "way",
    [by_value, by_text, by_stack, by_library, by_answer, by_key],
    ids=lambda way: way.__name__,
)
def test_credentials_are_removed(way, format_):
    """They are removed from values, texts, stacks, lines of libraries and answers of the API server."""
    stream = io.StringIO()
    configure(format_, "debug", stream=stream)
    way()

    text = stream.getvalue()
    assert "***" in text
    for secret in (JWT, JWT.split(".")[1], OPAQUE, "MIIBOgIBAAJBAK"):
        assert secret not in text


@pytest.mark.looptime
async def test_the_line_of_a_failed_reconcile_has_no_token():
    """The rest of the error is in the line."""

    class Careless:
        async def reconcile(self, request):
            raise raised(f"401 for Authorization: Bearer {OPAQUE}")

    stream = io.StringIO()
    configure("json", "debug", stream=stream)
    subject = Controller(name="careless", reconciler=Careless(), watches=[])
    request = Request(ObjectKey("ns", "a"))
    async with subject.running():
        subject.queue.add(request)
        await asyncio.sleep(1)

    line = next(text for text in stream.getvalue().splitlines() if "reconcile failed" in text)
    assert OPAQUE not in line
    assert "401 for Authorization: Bearer ***" in line


@pytest.mark.parametrize(
    "text",
    [
        "basic training of a bearer of news",
        "made job default/basic-workers-0",
        "a certificate -----BEGIN CERTIFICATE----- is no secret",
        "eyJ is short",
    ],
)
def test_ordinary_text_is_kept(text):
    """Text that only resembles a credential is not removed."""
    assert without_credentials(text) == text
