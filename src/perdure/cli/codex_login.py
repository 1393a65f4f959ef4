"""`perdure login codex`: sign in with a ChatGPT account, in the browser of this machine or elsewhere."""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import click

from perdure.cli.output import echo
from perdure.core.errors import ConfigError
from perdure.core.ports import Clock
from perdure.providers.codex_login import AuthorizationRequest, CodexLogin, CodexLogins, DeviceAuthorization

# The redirect addresses that the authorization server accepts.
PORTS = (1455, 1457)
CALLBACK_PATH = "/auth/callback"
TIMEOUT_S = 15 * 60.0
_SOCKET_TIMEOUT_S = 10.0
_POLL_S = 0.05
_PAGE = "<!doctype html><meta charset=utf-8><title>Perdure</title><p>{}</p>"


class CallbackServer:
    """Receives the redirect of one sign-in on loopback; requests with another state are refused and ignored."""

    def __init__(self, ports: Sequence[int] = PORTS, *, on_foreign: Callable[[], object] = lambda: None) -> None:
        self._on_foreign = on_foreign
        self._answers: queue.Queue[dict[str, str]] = queue.Queue()
        self.state = ""
        self._server = self._bind(ports)
        self._thread = Thread(target=self._server.serve_forever, args=(_POLL_S,), daemon=True, name="perdure-login")

    @property
    def redirect_uri(self) -> str:
        return f"http://localhost:{self._server.server_address[1]}{CALLBACK_PATH}"

    def __enter__(self) -> CallbackServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait(self, timeout_s: float) -> dict[str, str]:
        """Return the parameters of the redirect. Raises ConfigError after the timeout."""
        end = time.monotonic() + timeout_s
        while (remaining_s := end - time.monotonic()) > 0:
            try:
                # In short steps, so that Ctrl-C is noticed on every system.
                return self._answers.get(timeout=min(0.5, remaining_s))
            except queue.Empty:
                continue
        raise ConfigError(f"no sign-in within {timeout_s / 60:g} minutes; start again")

    def _bind(self, ports: Sequence[int]) -> ThreadingHTTPServer:
        for port in ports:
            try:
                return ThreadingHTTPServer(("127.0.0.1", port), self._handler())
            except OSError:
                continue
        listed = " and ".join(map(str, ports))
        raise ConfigError(f"the ports {listed} of this machine are in use; end the other sign-in, or use --no-browser")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receive = self._receive

        class CallbackHandler(BaseHTTPRequestHandler):
            timeout = _SOCKET_TIMEOUT_S

            def do_GET(self) -> None:
                status, text = receive(self.path)
                body = _PAGE.format(text).encode()
                self.send_response(status)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the base class
                """Log nothing: the path contains the authorization code."""

        return CallbackHandler

    def _receive(self, path: str) -> tuple[int, str]:
        parts = urlsplit(path)
        answer = dict(parse_qsl(parts.query))
        if parts.path != CALLBACK_PATH:
            return 404, "There is nothing here."
        if not secrets.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            self._on_foreign()
            return 400, "This answer belongs to another sign-in. The terminal has the address of the present one."
        self._answers.put(answer)
        if answer.get("error"):
            return 200, "The sign-in was refused. The terminal has the details."
        return 200, "Received. You can close this window and go back to the terminal."


def sign_in(
    issuer: str,
    client_id: str,
    *,
    open_browser: Callable[[str], object],
    now_ms: Callable[[], int],
    ports: Sequence[int] = PORTS,
    timeout_s: float = TIMEOUT_S,
    on_foreign: Callable[[], object] = lambda: None,
) -> CodexLogin:
    """Sign in through the browser of this machine. Raises ConfigError.

    `on_foreign` is called, in another thread, for an answer that belongs to another sign-in.
    """
    with CallbackServer(ports, on_foreign=on_foreign) as server:
        request = AuthorizationRequest(issuer, client_id, server.redirect_uri)
        server.state = request.state
        open_browser(request.url)
        code = request.code_of(server.wait(timeout_s))
    return request.redeem(code, now_ms=now_ms())


def sign_in_by_hand(issuer: str, client_id: str, *, ask: Callable[[str], str], now_ms: Callable[[], int]) -> CodexLogin:
    """Sign in through the browser of another machine: `ask` shows an address and returns the one it ended at."""
    request = AuthorizationRequest(issuer, client_id, f"http://localhost:{PORTS[0]}{CALLBACK_PATH}")
    answer = _parse_redirect(ask(request.url))
    return request.redeem(request.code_of(answer), now_ms=now_ms())


def _parse_redirect(pasted: str) -> Mapping[str, str]:
    try:
        return dict(parse_qsl(urlsplit(pasted.strip()).query))
    except ValueError:
        return {}


def sign_in_by_device(
    issuer: str,
    client_id: str,
    path: str,
    *,
    show: Callable[[DeviceAuthorization], object],
    clock: Clock,
    sleep: Callable[[float], object] = time.sleep,
) -> CodexLogin:
    """Sign in with a code that the user enters on another device. Raises ConfigError."""
    device = DeviceAuthorization.request(issuer, client_id, path)
    show(device)
    return device.poll(clock, sleep=sleep)


def login_codex(flags: Mapping[str, Any], *, way: Literal["browser", "by_hand", "device"]) -> None:
    """Sign in and store the login."""
    import webbrowser

    from perdure.cli.style import runnable
    from perdure.config.api_keys import StoredKeys, overrides_stored_key
    from perdure.config.env import home_dir
    from perdure.config.load import load
    from perdure.core.concurrency import SystemClock
    from perdure.providers.codex_login import VARIABLE

    credentials, clock, home = load(flags=flags).settings.credentials, SystemClock(), home_dir()

    def show(url: str) -> None:
        echo("Sign in with your ChatGPT account in the browser. If it does not open, visit:")
        echo(f"\n  {url}\n")
        webbrowser.open(url)

    def ask(url: str) -> str:
        echo("Open this address in a browser, on any machine, and sign in:")
        echo(f"\n  {url}\n")
        echo("It ends at an address that starts with http://localhost, where the browser shows an error.")
        return str(click.prompt("Paste that address here (not shown)", hide_input=True))

    def show_code(device: DeviceAuthorization) -> None:
        echo(f"Open {device.url} on any device, and enter the code:")
        echo(f"\n  {device.user_code}\n")
        if device.complete_url:
            echo(f"Or open {device.complete_url}, which has the code in it.")
        echo("Waiting for you to sign in there …")

    def warn() -> None:
        echo("An answer of another sign-in arrived and was ignored (its state differs). Still waiting …", err=True)

    issuer, client_id = credentials.codex_issuer, credentials.codex_client_id
    match way:
        case "browser":
            login = sign_in(issuer, client_id, open_browser=show, now_ms=clock.now_ms, on_foreign=warn)
        case "by_hand":
            login = sign_in_by_hand(issuer, client_id, ask=ask, now_ms=clock.now_ms)
        case "device":
            path = credentials.codex_device_path
            login = sign_in_by_device(issuer, client_id, path, show=show_code, clock=clock)
    location = CodexLogins(home, clock=clock).save(login)
    where = "the system keyring" if location == "keyring" else f"{StoredKeys(home).path}, which only you can read"
    echo(f"Signed in to Codex. The login is in {where}.")
    if overrides_stored_key(VARIABLE):
        echo(f"{VARIABLE} is set in the environment and goes before it.")
    command = "perdure config set model.provider openai-codex"
    echo(runnable(f"Use it with `perdure chat -p codex`, or from now on with `{command}`."))
