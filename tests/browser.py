"""A headless Chromium that tests steer: its debugging protocol over a pipe needs no package and no port."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from repro.system.jsonio import Json

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
TIMEOUT_S = 60.0


def executable() -> str | None:
    """The first Chromium on the path, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page. `complaints` holds what its console said and what it could not load."""

    def __init__(self, path: str) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self.out = os.pipe()
        self.inp, answers = os.pipe()
        # the protocol is read from descriptor 3 and written to 4
        shell = f'exec 3<&{theirs} 4>&{answers}; exec "$@"'
        command = ["bash", "-c", shell, "bash", path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
                   "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                   f"--user-data-dir={self.profile.name}", "about:blank"]  # fmt: skip
        self.process = subprocess.Popen(command, pass_fds=(theirs, answers), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(theirs)
        os.close(answers)
        self.buffer, self.number, self.session = b"", 0, ""
        self.events = []
        self.complaints = []
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        os.close(self.inp)
        os.close(self.out)
        self.profile.cleanup()

    def _message(self) -> Json:
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.inp], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("Chromium does not answer")
            read = os.read(self.inp, 1 << 16)
            if not read:
                raise EOFError("Chromium has ended")
            self.buffer += read
        line, _, self.buffer = self.buffer.partition(b"\0")
        found = json.loads(line)
        name, told = found.get("method", ""), found.get("params", {})
        self.events.append(name)
        if name == "Runtime.exceptionThrown":
            self.complaints.append(told["exceptionDetails"]["text"])
        elif name == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.complaints.append(str(told["args"]))
        elif name == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.complaints.append(told["entry"]["text"])
        elif name == "Network.requestWillBeSent" and not told["request"]["url"].startswith(
            ("file:", "data:", "about:")
        ):
            self.complaints.append(f"loads {told['request']['url']}")
        return found

    def call(self, method: str, **params: Any) -> Json:
        """One command of the protocol and its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._message()
            if found.get("id") == self.number:
                assert "error" not in found, found["error"]
                return found["result"]

    def open(self, page: Path) -> None:
        """Loads a file and waits until all of it is there."""
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self._message()

    def look(self, width: int, *, scheme: str = "light", media: str = "screen", script: bool = True) -> None:
        """Sets how the next page is shown: width in CSS pixels, light or dark, screen or print, with or without
        scripts."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])  # fmt: skip
        self.call("Emulation.setScriptExecutionDisabled", value=not script)

    def evaluate(self, expression: str) -> Any:
        """A JavaScript expression's value; a promise is waited for."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def pdf(self, file: Path) -> None:
        """The page as it is printed."""
        told = self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        file.write_bytes(base64.b64decode(told["data"]))
