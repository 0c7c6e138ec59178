"""Debian's Chromium, headless, for tests that look at a page: the DevTools protocol over a pipe, so no port is open.

https://chromedevtools.github.io/devtools-protocol/ names the methods. A message is JSON and a zero byte; the browser
reads descriptor 3 and writes descriptor 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
_ANSWER_WITHIN_S = 60.0


class Browser:
    """One Chromium with an empty profile, a context manager."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory(prefix="mtp-bench-chromium-", ignore_cleanup_errors=True)
        to_browser, self._writing = os.pipe()
        self._reading, from_browser = os.pipe()
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile.name}"]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command],
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._unread = b""
        self._calls = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._writing)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._reading)
        self._profile.cleanup()

    def page(self, width: int = 1280, height: int = 900, javascript: bool = True) -> Page:
        """A tab of its own, ``width`` by ``height`` CSS pixels."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.call("Emulation.setScriptExecutionDisabled", value=not javascript)
        return page

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The answer to one message; RuntimeError where the browser refuses it."""
        self._calls += 1
        message: dict[str, Any] = {"id": self._calls, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        while (answer := self._next(deadline)).get("id") != self._calls:
            self._events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def wait_for(self, event: str, session: str) -> None:
        """Return once ``event`` has come, or had come."""
        deadline = time.monotonic() + _ANSWER_WITHIN_S
        while not self.events(event, session):
            self._events.append(self._next(deadline))

    def events(self, name: str, session: str) -> list[dict[str, Any]]:
        """The parameters of every event of that name so far."""
        return [e["params"] for e in self._events if e.get("method") == name and e.get("sessionId") == session]

    def forget(self, session: str) -> None:
        """Drop the events of ``session`` so far."""
        self._events = [event for event in self._events if event.get("sessionId") != session]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"Chromium did not answer within {_ANSWER_WITHIN_S:g} s")
            read = os.read(self._reading, 1 << 20)
            if not read:
                raise RuntimeError(f"Chromium ended with exit code {self._process.wait()}")
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        return json.loads(message)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str, target: str) -> None:
        self._browser = browser
        self._session = session
        self._target = target

    def close(self) -> None:
        """Close the tab."""
        self._browser.call("Target.closeTarget", targetId=self._target)
        self._browser.forget(self._session)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One message to this tab."""
        return self._browser.call(method, self._session, **parameters)

    def events(self, name: str) -> list[dict[str, Any]]:
        """The events of this tab since it was opened on the page that it shows."""
        return self._browser.events(name, self._session)

    def open(self, file: Path) -> float:
        """Show a file; return the seconds until all of it was loaded and painted."""
        self._browser.forget(self._session)
        started = time.perf_counter()
        self.call("Page.navigate", url=file.resolve().as_uri())
        self._browser.wait_for("Page.loadEventFired", self._session)
        self.call("Page.captureScreenshot", format="jpeg", quality=1)  # waits for a frame
        return time.perf_counter() - started

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window in CSS pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Prefer the ``light`` or the ``dark`` scheme."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited; it runs whether or not the page's own scripts may."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", expression))
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key and let it go: ``Tab`` is 9, ``Enter`` 13."""
        keys = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **keys)
        self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    def screenshot(self, selector: str = "html") -> bytes:
        """A PNG of the first element that ``selector`` finds, all of it."""
        box = self.evaluate(
            f"(({{x, y, width, height}}) => ({{x: x + scrollX, y: y + scrollY, width, height}}))"
            f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
        )
        answer = self.call("Page.captureScreenshot", format="png", clip={**box, "scale": 1}, captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    def pdf(self) -> bytes:
        """The page as it prints on A4."""
        answer = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
        return base64.b64decode(answer["data"])

    def requests(self) -> list[str]:
        """The address of everything that the page asked for, itself included."""
        return [event["request"]["url"] for event in self.events("Network.requestWillBeSent")]

    def complaints(self) -> list[str]:
        """What the console shows, and what was thrown."""
        logged = [event["entry"]["text"] for event in self.events("Log.entryAdded")]
        said = [str(event["args"]) for event in self.events("Runtime.consoleAPICalled")]
        thrown = [event["exceptionDetails"]["text"] for event in self.events("Runtime.exceptionThrown")]
        return logged + said + thrown

    def accessibility(self) -> list[dict[str, Any]]:
        """The nodes that a screen reader meets, each with its ``role`` and ``name``, in the order of the page."""
        nodes = {node["nodeId"]: node for node in self.call("Accessibility.getFullAXTree")["nodes"]}
        found, todo = [], [next(iter(nodes))]
        while todo:
            node = nodes[todo.pop()]
            todo += reversed(node.get("childIds", []))
            if not node["ignored"]:
                found.append({"role": node["role"]["value"], "name": node.get("name", {}).get("value", "")})
        return found
