"""Errors as kubectl words them."""

from __future__ import annotations

from jobsetpy.errors import ApiError, ConnectFailedError, JobSetPyError, TransportError

EXIT_ERROR = 1
EXIT_USAGE = 2


class CommandError(Exception):
    """A sentence for the user; the command ends with ``code``."""

    def __init__(self, message: str, code: int = EXIT_ERROR) -> None:
        super().__init__(message)
        self.code = code


def explain(error: JobSetPyError, server: str) -> str:
    """A failed request as a sentence.

    Args:
        error: of the client.
        server: host and port.
    """
    if isinstance(error, ConnectFailedError):
        return (
            f"The connection to the server {server} was refused or failed - did you specify the "
            f"right host or port? ({error})"
        )
    if isinstance(error, ApiError):
        return f"Error from server ({error.reason or error.status}): {error.message}"
    if isinstance(error, TransportError):
        return f"Unable to connect to the server: {error}"
    return f"error: {error}"
