"""Exceptions for HTTP answers."""

import msgspec
import pytest

from jobsetpy import errors
from jobsetpy.client import error_from_response
from jobsetpy.client._errors import MAX_BODY, decode_error, parse_retry_after


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", errors.InvalidError),
        (401, "Unauthorized", errors.UnauthorizedError),
        (403, "Forbidden", errors.ForbiddenError),
        (404, "NotFound", errors.NotFoundError),
        (405, "MethodNotAllowed", errors.ApiError),
        (409, "AlreadyExists", errors.AlreadyExistsError),
        (409, "Conflict", errors.ConflictError),
        (410, "Expired", errors.ExpiredError),
        (410, "Gone", errors.ExpiredError),
        (413, "RequestEntityTooLarge", errors.ApiError),
        (422, "Invalid", errors.InvalidError),
        (429, "TooManyRequests", errors.RetryableApiError),
        (500, "InternalError", errors.RetryableApiError),
        (503, "ServiceUnavailable", errors.RetryableApiError),
        (504, "Timeout", errors.RetryableApiError),
        (302, "", errors.ApiError),
    ],
)
def test_status_and_reason_select_the_class(status, reason, expected):
    """The reason matters where a status has several meanings."""
    body = msgspec.json.encode({"kind": "Status", "reason": reason, "message": "because"})

    error = error_from_response(status, {}, body, verb="get", target="pods a/b")

    assert type(error) is expected
    assert (status, reason, "because") == (error.status, error.reason, error.message)
    assert str(error).startswith("get pods a/b: ")


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"\xff\xfe", b"[]", b"null"])
def test_answers_of_proxies_are_accepted(body):
    """A body that is not a Status object gives the right exception, too."""
    error = error_from_response(502, {}, body, verb="get", target="x")

    assert type(error) is errors.RetryableApiError
    assert error.reason == ""


def test_body_is_kept_up_to_a_limit():
    """Callers may read details, and an exception does not keep a huge answer in memory."""
    error = error_from_response(422, {}, b"x" * 100_000, verb="create", target="x")

    assert len(error.body) == MAX_BODY
    assert len(str(error)) < 1000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0.0),
        ("7", 7.0),
        (" 12 ", 12.0),
        ("31", 30.0),
        ("999999999", 30.0),
        ("Sun, 01 Mar 2026 12:00:20 GMT", None),
        ("soon", None),
        ("-3", None),
        ("", None),
        ("٣", None),
    ],
)
def test_retry_after_counts_when_it_is_whole_seconds(text, expected):
    """It counts up to 30 s; other values are ignored, such as dates, which API servers do not send."""
    assert parse_retry_after(text) == expected


def test_retry_after_header_precedes_details():
    """The Status object's hint counts if the header is missing or invalid."""
    body = b'{"details": {"retryAfterSeconds": 9}}'

    assert error_from_response(429, {}, body, verb="", target="").retry_after == 9.0
    headers = {"retry-after": "2"}
    assert error_from_response(429, headers, body, verb="", target="").retry_after == 2.0
    headers = {"retry-after": "whenever"}
    assert error_from_response(429, headers, body, verb="", target="").retry_after == 9.0
    assert error_from_response(503, {}, b"", verb="", target="").retry_after is None
    body = b'{"details": {"retryAfterSeconds": 1800}}'
    assert error_from_response(429, {}, body, verb="", target="").retry_after == 30.0


def test_decode_errors_name_the_path():
    """The path is separated from msgspec's text and appended to the prefix."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b'{"a": [1, "x"]}', type=dict[str, list[int]])
    error = decode_error("Thing", caught.value, "$.items[3]")

    assert error.path == "$.items[3][...][1]"
    assert error.kind == "Thing"
    assert decode_error("Thing", msgspec.DecodeError("cut off")).path == ""
