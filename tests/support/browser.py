"""A real Chromium, driven over its DevTools protocol: just enough to use the page as a person does.

with Chromium.start(tmp_path) as chromium:
    page = chromium.page()
    page.open("http://127.0.0.1:8801/")
    page.click("text/Usage")
"""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--no-first-run",
    "--no-proxy-server",
    "--hide-scrollbars",
    # One process shows all tabs: to start one or two for every test takes as long as a page.
    "--renderer-process-limit=1",
    "--disable-site-isolation-trials",
    "--disable-features=site-per-process,IsolateOrigins",
    "--disable-extensions",
    "--disable-component-extensions-with-background-pages",
    "--disable-default-apps",
    # Nothing but this machine can be reached at all; what is tried is still seen as a request.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)
# Nothing to compress on this machine; a tab that is gone answers no farewell.
_ON_LOOPBACK: dict[str, Any] = {"max_size": None, "proxy": None, "compression": None, "close_timeout": 0.2}
# Kept from before any script of the page runs: whatever the content security policy had to refuse.
WATCH = """self.__refused = [];
addEventListener('securitypolicyviolation', e => __refused.push(e.violatedDirective));
const isIn = (one, other) => one.contains(other) || other.contains(one);
addEventListener('click', e => { if (self.__aimed) __aimed.isHit = isIn(__aimed.element, e.target); }, true);
"""
# An element that is drawn again between the press and the release of the mouse gets no click.
_CLICKS = 5
KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "PageUp": (33, ""),
    "PageDown": (34, ""),
    "Home": (36, ""),
    "End": (35, ""),
}


def chromium_path() -> str | None:
    """Where a Chromium is on this machine; None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(AssertionError):
    """The browser refused, or what was waited for did not come."""


@dataclass
class Chromium:
    port: int
    pages: list[Page] = field(default_factory=list)

    @classmethod
    @contextmanager
    def start(cls, folder: Path) -> Iterator[Chromium]:
        """A fresh profile in `folder`; the browser ends with the block."""
        path = chromium_path()
        if path is None:
            raise BrowserError("no Chromium on this machine")
        profile = folder / "profile"
        command = [path, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        chromium = None
        try:
            chromium = cls(_debugging_port(profile))
            yield chromium
        finally:
            for page in chromium.pages if chromium else ():
                page.close()
            process.terminate()
            process.wait(10)

    def page(self, *, width: int = 1280, height: int = 900) -> Page:
        """A new tab, watched from its first request on."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as answer:
            target = json.load(answer)
        page = Page(target["webSocketDebuggerUrl"])
        for domain in ("Page", "Runtime", "Network"):
            page.call(f"{domain}.enable")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        page.resize(width, height)
        self.pages.append(page)
        return page


def _debugging_port(profile: Path, timeout_s: float = 20) -> int:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        told = profile / "DevToolsActivePort"
        if told.exists() and (lines := told.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise BrowserError("Chromium did not start")


class Page:
    """One tab. Selectors are CSS, or `text/…` for the smallest element whose text that is."""

    def __init__(self, url: str) -> None:
        self._open = ExitStack()
        self._socket = self._open.enter_context(connect(url, **_ON_LOOPBACK))
        self._numbers = itertools.count(1)
        self.requests: list[str] = []
        self.received_bytes = 0
        self.dialogs: list[str] = []
        self.errors: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") != number:
                self._note(message)
            elif "error" in message:
                raise BrowserError(f"{method}: {message['error']['message']}")
            else:
                result: dict[str, Any] = message["result"]
                return result

    def _note(self, message: dict[str, Any]) -> None:
        method, told = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Network.loadingFinished":
            self.received_bytes += int(told["encodedDataLength"])
        elif method == "Page.javascriptDialogOpening":
            self.dialogs.append(told["message"])
            self._socket.send(
                json.dumps({"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}})
            )
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        told = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            raise BrowserError(f"{expression[:200]}: {told['exceptionDetails']['exception'].get('description')}")
        return told["result"].get("value")

    def wait(self, expression: str, *, timeout_s: float = 25) -> Any:
        """Its value, as soon as JavaScript takes it for true; an element is an empty dict here.

        What is not there yet has no properties: a TypeError is waited for, too.
        """
        until = time.monotonic() + timeout_s
        tried = f"try {{ return ({expression}) }} catch (e) {{ if (!(e instanceof TypeError)) throw e }}"
        while time.monotonic() < until:
            value = self.run(f"(() => {{ {tried} }})()")
            if value or value == {}:
                return value
            time.sleep(0.03)
        self.run(expression)  # raises what was wrong with it
        raise BrowserError(f"waited {timeout_s} s for {expression}; the page says: {self.text('main')[:1500]}")

    def wait_text(self, words: str, *, inside: str = "main", timeout_s: float = 25) -> None:
        needle = json.dumps(words)
        self.wait(f"document.querySelector({json.dumps(inside)})?.innerText.includes({needle})", timeout_s=timeout_s)

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def count(self, selector: str) -> int:
        return int(self.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the element, as soon as it is there and stands still."""
        last, place = None, self.wait(f"({_FIND})({json.dumps(selector)})")
        while place != last:  # a list that still grows would move it from under the mouse
            time.sleep(0.05)
            last, place = place, self.wait(f"({_FIND})({json.dumps(selector)})")
        for _ in range(_CLICKS):
            x, y = place
            for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            # A page that the click has left knows nothing of it.
            if self.run("!self.__aimed || __aimed.isHit"):
                return
            place = self.wait(f"({_FIND})({json.dumps(selector)})")
        raise BrowserError(f"{selector} gets no click")

    def hover(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str) -> None:
        code, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            sent = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **sent)

    def resize(self, width: int, height: int, *, scale: float = 1) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    def prefer(self, theme: str) -> None:
        """What the system says: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def screenshot(self, path: Path, *, kind: str = "png", quality: int = 80, whole: bool = False) -> None:
        options: dict[str, Any] = {"format": kind, "captureBeyondViewport": whole}
        if kind != "png":
            options["quality"] = quality
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))

    def refused(self) -> list[str]:
        """What the content security policy had to stop."""
        return list(self.run("self.__refused"))

    def close(self) -> None:
        self._open.close()


# The middle of an element that stands still and is not covered; null while that is not so.
_FIND = """async (selector) => {
  const named = "a, button, summary, label, li, td, span";
  const isText = (element) => element.textContent.trim() === selector.slice(5);
  const all = selector.startsWith("text/")
    ? [...document.querySelectorAll(named)].filter(isText) : [...document.querySelectorAll(selector)];
  const found = all.find((element) => element.checkVisibility());
  if (!found) return null;
  found.scrollIntoView({ block: "center", inline: "center" });
  const before = found.getBoundingClientRect();
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  const box = found.getBoundingClientRect();
  const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
  const hit = document.elementFromPoint(x, y);
  if (box.y !== before.y || !hit || !(found.contains(hit) || hit.contains(found))) return null;
  self.__aimed = { element: found, isHit: false };
  return [x, y];
}"""
