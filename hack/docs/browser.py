"""Pictures of pages in a headless Chromium, at any width.

Chromium is Debian's. It is controlled by its DevTools protocol through a pipe: JSON messages, each
ended by a zero byte. Pages are local files; nothing is downloaded.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--mute-audio")
PHONE = 600
"""Widths below it are those of phones: the page's own viewport declaration applies."""


class Browser:
    """A running browser; :func:`browser` creates it.

    Args:
        commands: pipe to the browser.
        answers: pipe from the browser.
    """

    def __init__(self, commands: Any, answers: Any) -> None:
        self._commands, self._answers = commands, answers
        self._number = 0
        self._rest = b""

    def picture(self, page: Path, width: int, out: Path) -> None:
        """Write a PNG of a whole page.

        Args:
            page: HTML file.
            width: width of the window, in pixels.
            out: file for the picture.
        """
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        size = {"width": width, "height": 100, "deviceScaleFactor": 1, "mobile": width < PHONE}
        self._ask("Emulation.setDeviceMetricsOverride", session, **size)
        self._ask("Page.enable", session)
        self._ask("Page.navigate", session, url=page.resolve().as_uri())
        self._until("Page.loadEventFired")
        content = self._ask("Page.getLayoutMetrics", session)["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": width, "height": content["height"], "scale": 1}
        shot = self._ask("Page.captureScreenshot", session, clip=clip, captureBeyondViewport=True)
        out.write_bytes(base64.b64decode(shot["data"]))
        self._ask("Target.closeTarget", targetId=target)

    def _ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _until(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._answers.fileno(), 1 << 16)
            if not more:
                raise RuntimeError("the browser ended")
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """Run a browser within the block.

    Raises:
        FileNotFoundError: no browser is installed.
    """
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise FileNotFoundError("a browser is needed for pictures: apt-get install chromium")
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    with tempfile.TemporaryDirectory(
        prefix="jobsetpy-browser-", ignore_cleanup_errors=True
    ) as profile:
        # Chromium reads commands from 3 and writes answers to 4.
        words = [program, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        script = f'exec "$@" 3<&{in_read} 4>&{out_write}'
        process = subprocess.Popen(
            ["bash", "-c", script, "browser", *words],
            pass_fds=(in_read, out_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(in_read)
        os.close(out_write)
        try:
            with os.fdopen(in_write, "wb") as commands, os.fdopen(out_read, "rb", 0) as answers:
                yield Browser(commands, answers)
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
