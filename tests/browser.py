"""A headless Chromium that a test drives over DevTools' pipe: a page on a phone and on a desktop.

with Browser(require("chromium"), tmp_path / "profile") as browser:
    browser.open("http://127.0.0.1:8080/", width=390)
    assert browser.run("document.documentElement.scrollWidth") <= 390
"""

import contextlib
import itertools
import json
import os
import pathlib
import select
import subprocess
import time
from typing import Any

# Seconds that the browser may take to answer; a machine with two CPUs runs other tests beside it.
_PATIENCE = 120
# The pipe's two ends are the descriptors 3 and 4 of the browser.
_START = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)


class Browser:
    """One page of a browser; a context that ends the process.

    Attributes:
      loads: number of pages that were loaded so far.
      log: what the browser has said of the pages since the last `open`, such as what a policy kept from loading.
    """

    def __init__(self, program: str, profile: pathlib.Path) -> None:
        self.log: list[str] = []
        self.loads = 0
        self._numbers, self._answers, self._unread = itertools.count(1), {}, b""
        to_browser, out = os.pipe()
        self._out = os.fdopen(out, "wb")
        self._in, from_browser = os.pipe()
        command = [program, *_OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            ["bash", "-c", _START, "chromium", str(to_browser), str(from_browser), *command],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        target = self._ask("Target.createTarget", {"url": "about:blank"}, {})["targetId"]
        attached = self._ask("Target.attachToTarget", {"targetId": target, "flatten": True}, {})
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Page", "Log", "Runtime"):
            self.command(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            self._ask("Browser.close", {}, {})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._out.close()
        os.close(self._in)

    def open(self, url: str, *, width: int = 1280, height: int = 900) -> None:
        """Open a page in a window of that size in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.command("Emulation.setDeviceMetricsOverride", **size)
        self.log.clear()
        before, until = self.loads, time.monotonic() + _PATIENCE
        answer = self.command("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        while self.loads == before:
            self._read(until)

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, or what its promise resolves to; whatever the page's policy."""
        answer = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def command(self, method: str, **parameters: Any) -> dict:
        """The answer to a command of DevTools' protocol to the page."""
        return self._ask(method, parameters, self._session)

    def _ask(self, method: str, parameters: dict, session: dict) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters, **session}
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        until = time.monotonic() + _PATIENCE
        while number not in self._answers:
            self._read(until)
        answer = self._answers.pop(number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _read(self, until: float) -> None:
        """Takes in what the browser says next: answers, and events of the page."""
        if not select.select([self._in], [], [], max(0, until - time.monotonic()))[0]:
            raise TimeoutError("the browser does not answer")
        self._unread += os.read(self._in, 1 << 20)
        *messages, self._unread = self._unread.split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            elif message["method"] == "Page.loadEventFired":
                self.loads += 1
            elif message["method"] == "Log.entryAdded":
                self.log.append(message["params"]["entry"]["text"])
