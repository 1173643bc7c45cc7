"""Client of a cluster's supervisor, and minimal client of its API server."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import ssl
from pathlib import Path
from typing import Any

from ._errors import ClusterError


def ask(folder: Path, op: str, *, timeout_s: float = 10.0, **arguments: Any) -> dict[str, Any]:
    """Send one command to the supervisor of `folder`; return its answer.

    Raises:
        ClusterError: no process listens there, or the command failed.
    """
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(timeout_s)
                # By the folder's descriptor, because a socket's path is limited to 107 bytes.
                sock.connect(f"/proc/self/fd/{fd}/ctl.sock")
                sock.sendall(json.dumps({"op": op, **arguments}).encode() + b"\n")
                line = sock.makefile("rb").readline()
        finally:
            os.close(fd)
    except OSError as error:
        raise ClusterError(
            f"the cluster's supervisor does not answer ({error}): {folder}"
        ) from error
    answer: dict[str, Any] = json.loads(line) if line else {"error": "no answer"}
    if "error" in answer:
        raise ClusterError(f"supervisor: {answer['error']}")
    result: dict[str, Any] = answer["ok"]
    return result


class Api:
    """Requests of this tool to an API server, with a kubeconfig of `_config.kubeconfig`."""

    def __init__(self, kubeconfig: Path) -> None:
        # No YAML parser is needed: the layout is that of `_config.kubeconfig`.
        text = kubeconfig.read_text()
        values = dict(re.findall(r"^ +([\w-]+): (\S+)$", text, re.MULTILINE))
        host = re.fullmatch(r"https://([\w.]+):(\d+)", values["server"])
        assert host is not None
        self._host, self._port = host[1], int(host[2])
        self._headers = {"Authorization": f"Bearer {values['token']}"}
        ca = base64.b64decode(values["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=ca)

    def request(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        content_type: str = "application/yaml",
        timeout_s: float = 5.0,
    ) -> tuple[int, str]:
        """Return the status and the body's text.

        Raises:
            OSError: the connection failed, or its certificate is not trusted.
        """
        connection = http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=self._tls
        )
        headers = {**self._headers, **({"Content-Type": content_type} if body is not None else {})}
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def get(self, path: str) -> dict[str, Any] | None:
        """Return the object at `path`; None if it does not exist or the server is unreachable."""
        try:
            status, text = self.request("GET", path)
        except OSError:
            return None
        if status != 200:
            return None
        data: dict[str, Any] = json.loads(text)
        return data

    def ready(self) -> bool:
        try:
            return self.request("GET", "/readyz", timeout_s=2.0)[0] == 200
        except OSError:
            return False
