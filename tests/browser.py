"""A headless Chromium, driven through its own protocol over two pipes: no driver, no package.

``with Browser() as browser: browser.open(path); browser.run("document.title")``. Tests that need one are skipped where
there is none (`needs_browser`); Debian's package is `chromium`.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PROGRAM = os.environ.get("REMAT_TEST_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
PATIENCE = 60.0
"""Seconds without an answer after which something hangs."""

needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here (apt install chromium)")

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


class Browser:
    """One page of a headless browser.

    `errors` has what its console complained of, and what scripts threw, since the page was opened.
    """

    def __init__(self, width=1280, height=900, *, dark=False):
        self.errors = []
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_there, self._write = os.pipe()
        self._read, write_there = os.pipe()
        # The browser reads from its descriptor 3, and writes to 4.
        more = (f"--user-data-dir={self._folder.name}", f"--window-size={width},{height}")
        command = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", command, str(read_there), str(write_there), PROGRAM, *_FLAGS, *more, "about:blank"],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_there)
        os.close(write_there)
        self._buffer, self._number, self._events = b"", 0, []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")
        self.resize(width, height)
        self.appear(dark=dark)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, RuntimeError):
            self._ask("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)
        self._folder.cleanup()

    # -------------------------------------------------------------------------------------- protocol

    def ask(self, method, **arguments):
        """Send a command of the protocol for this page; return its answer."""
        return self._ask(method, self._session, **arguments)

    def _ask(self, method, session=None, **arguments):
        self._number += 1
        message = {"id": self._number, "method": method, "params": arguments}
        os.write(self._write, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def _next(self, patience=PATIENCE):
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], patience)[0]:
                raise RuntimeError("the browser does not answer")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        method, about = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(f"{about['entry']['text']} {about['entry'].get('url', '')}".strip())
        elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "assert"):
            self.errors.append(" ".join(str(part.get("value", part.get("description"))) for part in about["args"]))
        elif method == "Page.loadEventFired":
            self._events.append(method)

    # ------------------------------------------------------------------------------------------ page

    def open(self, where):
        """Open a file (or an address), and wait until it has loaded; forget earlier errors."""
        self.errors.clear()
        self._events.clear()
        url = where if "://" in str(where) else Path(where).resolve().as_uri()
        self.ask("Page.navigate", url=url)
        while "Page.loadEventFired" not in self._events:
            self._note(self._next())

    def run(self, script):
        """Run JavaScript (an expression, awaited if it is a promise), and return its value."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, condition, patience=PATIENCE):
        """Wait until an expression holds."""
        until = time.monotonic() + patience
        while True:
            try:
                if found := self.run(condition):
                    return found
            except RuntimeError:  # between two pages there is no document
                if time.monotonic() > until:
                    raise
            if time.monotonic() > until:
                raise RuntimeError(f"in vain: {condition}; {self.errors}")
            time.sleep(0.02)

    def settle(self):
        """Wait for two frames."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def resize(self, width, height):
        """Change the size of the window."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def appear(self, *, dark):
        """Ask for the light or the dark look."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[feature])

    def mouse(self, kind, x, y, **more):
        """Move (``mouseMoved``), press, release or turn the wheel of (``mouseWheel``) the mouse."""
        button = {} if kind in ("mouseMoved", "mouseWheel") else {"button": "left", "clickCount": 1}
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, **(button | more))

    def press(self, key):
        """Press a key."""
        text = {"text": key} if len(key) == 1 else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def picture(self, path, *, whole=False):
        """Write a PNG of the visible part, or of the whole page."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(found["data"]))
