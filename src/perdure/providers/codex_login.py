"""Sign in to Codex with a ChatGPT account: OAuth 2.0 with PKCE, and tokens that are refreshed in time.

A login is stored like a key (`config.api_keys`), as one JSON text. An endpoint that uses it has LOGIN_KEY in place of a
key, and `CodexSend` sets the current access token and the account for each call: it is refreshed before it expires,
and once when the service refuses it. Refresh tokens are used once, so processes take turns and read the store first.
Tokens are never part of an error or a log line.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import re
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlencode

from perdure.config.api_keys import LOGIN_KEY, Keyring, Location, StoredKeys, system_keyring
from perdure.config.env import lock_home
from perdure.core.addresses import is_loopback_url
from perdure.core.errors import ConfigError, ErrorKind, ErrorVerdict, ProviderError
from perdure.core.ports import Clock
from perdure.providers.http import certificates_for, is_html
from perdure.providers.types import Endpoint, ModelRequest, Reply, RequestEvent

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger(__name__)
PROVIDER, VARIABLE = "openai-codex", "OPENAI_CODEX_TOKEN"
ACCOUNT_HEADER = "chatgpt-account-id"
SCOPE = "openid profile email offline_access"
# The namespace of OpenAI's claims in an id token.
_CLAIMS = "https://api.openai.com/auth"
# A token is refreshed this long before it expires.
REFRESH_MARGIN_MS = 300_000
_DEFAULT_LIFETIME_S = 3_600
_TIMEOUT_S = 30.0
_MAX_BODY_BYTES = 1 << 20
_ERROR_CODE = re.compile(r"[a-z][a-z0-9_.-]{1,60}", re.IGNORECASE)
_AGAIN = "sign in again with `perdure login codex`"
_NOT_SIGNED_IN = "no one is signed in to Codex; sign in with `perdure login codex`"
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_DEVICE_LIFETIME_S, _DEVICE_INTERVAL_S, _SLOW_DOWN_S = 900.0, 5.0, 5.0
# In place of a JSON value, where a response is HTML.
_WEB_PAGE = object()


@dataclass(frozen=True, slots=True)
class CodexLogin:
    """A stored login: access and refresh tokens, account and issuer."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    account_id: str
    expires_at_ms: int
    issuer: str
    client_id: str
    # The server refused the refresh token: the user has to sign in again.
    is_refused: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CodexLogin:
        """Parse a stored login. Raises ConfigError if it is not one."""
        try:
            raw = json.loads(text)
            return cls(
                str(raw["access_token"]),
                str(raw["refresh_token"]),
                str(raw["account_id"]),
                int(raw["expires_at_ms"]),
                str(raw["issuer"]),
                str(raw["client_id"]),
                bool(raw.get("is_refused")),
            )
        except (ValueError, KeyError, TypeError):
            raise ConfigError(f"the stored Codex login cannot be read; {_AGAIN}") from None


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """An OAuth authorization request: what is sent to the server, and what its response is validated against."""

    issuer: str
    client_id: str
    redirect_uri: str
    state: str = field(repr=False, default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(repr=False, default_factory=lambda: secrets.token_urlsafe(64))

    @property
    def url(self) -> str:
        """The address at which the user signs in."""
        digest = hashlib.sha256(self.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self.client_id,
            "redirect_uri": self.redirect_uri,
            "scope": SCOPE,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "state": self.state,
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
            "originator": "perdure",
        }
        return f"{self.issuer}/oauth/authorize?{urlencode(query)}"

    def code_of(self, answer: Mapping[str, str]) -> str:
        """Return the authorization code of the redirect's parameters. Raises ConfigError."""
        if not secrets.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            raise ConfigError("the answer belongs to another sign-in (its state differs); start again")
        if answer.get("error"):
            raise ConfigError(f"the sign-in was refused ({_error_code(answer['error'])})")
        if not answer.get("code"):
            raise ConfigError("the answer has no authorization code; start again")
        return answer["code"]

    def redeem(self, code: str, *, now_ms: int) -> CodexLogin:
        """Exchange an authorization code for a login. Blocks. Raises ConfigError."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "client_id": self.client_id,
            "code_verifier": self.verifier,
        }
        try:
            answer = _post_form(f"{self.issuer}/oauth/token", form)
            login = CodexLogin("", "", "", 0, self.issuer, self.client_id)
            return _with_tokens(login, answer, now_ms=now_ms)
        except ProviderError as error:
            raise ConfigError(error.verdict.message) from None


def refresh(login: CodexLogin, *, now_ms: int) -> CodexLogin:
    """Return the login with fresh tokens. Blocks. Raises ProviderError: `auth` if the user has to sign in again."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": login.refresh_token,
        "client_id": login.client_id,
        "scope": SCOPE,
    }
    return _with_tokens(login, _post_form(f"{login.issuer}/oauth/token", form), now_ms=now_ms)


@dataclass(frozen=True, slots=True)
class DeviceAuthorization:
    """A sign-in on another device (RFC 8628): the user enters `user_code` at `url`, and the server is polled."""

    issuer: str
    client_id: str
    device_code: str = field(repr=False)
    user_code: str
    url: str
    # With the code in it; "" where the server has none.
    complete_url: str
    lifetime_s: float
    interval_s: float

    @classmethod
    def request(cls, issuer: str, client_id: str, path: str) -> DeviceAuthorization:
        """Ask the server for a code. Blocks. Raises ConfigError."""
        try:
            status, answer = _post(f"{issuer}{path}", {"client_id": client_id, "scope": SCOPE})
            if status in (404, 405):
                raise ConfigError(f"{issuer} offers no sign-in by code at {path}; use --no-browser instead")
            answer = _check_response(status, answer)
        except ProviderError as error:
            raise ConfigError(error.verdict.message) from None
        texts = {name: value for name, value in answer.items() if isinstance(value, str) and value.isprintable()}
        if not all(texts.get(name) for name in ("device_code", "user_code", "verification_uri")):
            raise ConfigError("the sign-in server sent no usable code; use --no-browser instead")
        return cls(
            issuer,
            client_id,
            texts["device_code"],
            texts["user_code"],
            texts["verification_uri"],
            complete_url=texts.get("verification_uri_complete", ""),
            lifetime_s=_seconds(answer.get("expires_in"), _DEVICE_LIFETIME_S),
            interval_s=_seconds(answer.get("interval"), _DEVICE_INTERVAL_S),
        )

    def poll(self, clock: Clock, *, sleep: Callable[[float], object]) -> CodexLogin:
        """Wait until the user has entered the code. Blocks. Raises ConfigError."""
        form = {"grant_type": _DEVICE_GRANT, "device_code": self.device_code, "client_id": self.client_id}
        end_s, interval_s = clock.monotonic_s() + self.lifetime_s, self.interval_s
        while clock.monotonic_s() < end_s:
            sleep(interval_s)
            try:
                status, answer = _post(f"{self.issuer}/oauth/token", form)
                refusal = _refusal_code(answer) if status in (400, 401, 403) else ""
                if refusal in ("access_denied", "expired_token"):
                    raise ConfigError(f"the sign-in was refused ({refusal})")
                if refusal == "slow_down":
                    interval_s += _SLOW_DOWN_S
                elif refusal != "authorization_pending":
                    login = CodexLogin("", "", "", 0, self.issuer, self.client_id)
                    return _with_tokens(login, _check_response(status, answer), now_ms=clock.now_ms())
            except ProviderError as error:
                if error.verdict.kind == "auth":
                    raise ConfigError(error.verdict.message) from None
                interval_s += _SLOW_DOWN_S  # out of reach for a moment: the code stays valid
        raise ConfigError(f"the code was not entered within {self.lifetime_s / 60:g} minutes; start again")


def _post_form(url: str, form: Mapping[str, str]) -> dict[str, Any]:
    return _check_response(*_post(url, form))


def _post(url: str, form: Mapping[str, str]) -> tuple[int, object]:
    """Return the status and the JSON value of a response; _WebPage for HTML. Raises ProviderError."""
    import httpx

    # A proxy of the environment is for other machines.
    trusts_env = not is_loopback_url(url)
    try:
        with (
            httpx.Client(verify=certificates_for(url), timeout=_TIMEOUT_S, trust_env=trusts_env) as client,
            client.stream("POST", url, data=dict(form), headers={"accept": "application/json"}) as response,
        ):
            status, body = response.status_code, _read_bounded(response)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _login_error("transport", f"the sign-in server cannot be reached ({type(error).__name__})") from None
    if is_html(body):
        return status, _WEB_PAGE
    try:
        return status, json.loads(body)
    except (ValueError, RecursionError):
        return status, None


def _check_response(status: int, answer: object) -> dict[str, Any]:
    """Return the object of a successful response. Raises ProviderError."""
    if status == 200 and isinstance(answer, dict):
        return answer
    if status in (400, 401, 403):
        raise _login_error("auth", f"the Codex login is not valid ({_refusal_code(answer)}); {_AGAIN}", status)
    if status == 200:
        what = "with a web page" if answer is _WEB_PAGE else "with something else"
        raise _login_error(
            "transport",
            f"the sign-in server answered {what} instead of tokens; check credentials.codex_issuer, or whether"
            " a proxy or the login page of a network answers in its place",
        )
    kind: ErrorKind = "rate_limit" if status == 429 else "overloaded" if status >= 500 else "transport"
    raise _login_error(kind, f"the sign-in server answered with status {status}; try again later", status)


def _read_bounded(response: httpx.Response) -> bytes:
    body = b""
    for piece in response.iter_bytes():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            break
    return body


def _login_error(kind: ErrorKind, message: str, status: int | None = None) -> ProviderError:
    # The general advice on refused keys does not fit a login.
    remedy = "" if kind == "auth" else None
    return ProviderError(ErrorVerdict(kind, message, status, remedy=remedy), may_be_billed=False)


def _refusal_code(answer: object) -> str:
    """Return the code of an error body: `{"error": "…"}`, or `{"error": {"code": "…"}}`."""
    error = answer.get("error") if isinstance(answer, dict) else None
    return _error_code(error.get("code") if isinstance(error, dict) else error)


def _error_code(value: object) -> str:
    """Return an error code; a longer text may contain a secret, and is left out."""
    return value if isinstance(value, str) and _ERROR_CODE.fullmatch(value) else "no reason given"


def _with_tokens(login: CodexLogin, answer: Mapping[str, Any], *, now_ms: int) -> CodexLogin:
    """Return the login with the tokens of a response; tokens that a refresh omits are kept."""
    access, new_refresh = answer.get("access_token"), answer.get("refresh_token") or login.refresh_token
    account = account_of(str(answer.get("id_token") or "")) or login.account_id
    is_complete = isinstance(access, str) and access and isinstance(new_refresh, str) and new_refresh
    if not is_complete or not all(map(_is_header_value, (access, account))):
        raise _login_error("auth", f"the sign-in server sent no usable tokens; {_AGAIN}")
    if not account:
        raise _login_error("auth", "the sign-in has no ChatGPT account; sign in with an account that has Codex")
    lifetime_s = _seconds(answer.get("expires_in"), _DEFAULT_LIFETIME_S)
    return replace(
        login,
        access_token=str(access),
        refresh_token=str(new_refresh),
        account_id=account,
        expires_at_ms=now_ms + round(lifetime_s * 1000),
        is_refused=False,
    )


def _seconds(value: object, default_s: float) -> float:
    """Return a duration of a response; 0 for one that has passed."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0.0, float(value)) if is_number and -(10**9) < value < 10**9 else default_s  # type: ignore[operator, arg-type]  # a number


def _is_header_value(value: object) -> bool:
    return isinstance(value, str) and value.isascii() and (value.isprintable() or not value)


def account_of(id_token: str) -> str:
    """Return the ChatGPT account in the claims of an id token, "" where it names none.

    The signature is not verified: the token came from the issuer itself, over TLS.
    """
    parts = id_token.split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        account = claims[_CLAIMS]["chatgpt_account_id"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return account if isinstance(account, str) else ""


class CodexLogins:
    """Loads, refreshes and stores the login, in turns with other processes. Thread-safe."""

    def __init__(
        self, home: Path, *, clock: Clock, open_keyring: Callable[[], Keyring | None] = system_keyring
    ) -> None:
        self._home = home
        self._keys = StoredKeys(home, open_keyring=open_keyring)
        self._clock = clock
        self._lock = threading.Lock()
        self._cached: tuple[object, CodexLogin] | None = None

    def save(self, login: CodexLogin) -> Location:
        """Store a login and return where. Raises ConfigError."""
        return self._keys.put(VARIABLE, login.to_json())

    def current(self) -> CodexLogin:
        """Return a login that is valid for a while, refreshed if need be. Blocks. Raises ProviderError."""
        login = self._load()
        if login.expires_at_ms - self._clock.now_ms() > REFRESH_MARGIN_MS:
            return login
        try:
            return self.renew(login)
        except ProviderError as error:
            # The server is out of reach, but the token is valid for some minutes.
            if error.verdict.kind == "auth" or login.expires_at_ms <= self._clock.now_ms():
                raise
            return login

    def renew(self, refused: CodexLogin) -> CodexLogin:
        """Return a login other than the refused one: refreshed, or stored by another process meanwhile. Blocks.

        Raises ProviderError.
        """
        with self._lock, lock_home(self._home, "codex-login.lock"):
            stored = self._load()
            if stored.access_token != refused.access_token:  # another process was first
                return stored
            try:
                fresh = refresh(stored, now_ms=self._clock.now_ms())
            except ProviderError as error:
                if error.verdict.kind == "auth" and not stored.is_refused:
                    with contextlib.suppress(ConfigError):  # the mark is for `perdure login --list` alone
                        self.save(replace(stored, is_refused=True))
                raise
            # Stored before it is used: the old refresh token is used up.
            try:
                self.save(fresh)
            except ConfigError as error:
                # The old refresh token is used up: this process continues with the new one.
                _log.warning("the refreshed Codex login could not be stored: %s", error)
                self._cached = (self._version(), fresh)
            return fresh

    def _load(self) -> CodexLogin:
        """Return the login, read again only after the file that lists the keys has changed: a keyring is slow."""
        version, cached = self._version(), self._cached
        if version is not None and cached is not None and cached[0] == version:
            return cached[1]
        try:
            text = self._keys.get(VARIABLE)
            login = CodexLogin.from_json(text) if text is not None else None
        except ConfigError as error:
            raise _login_error("auth", str(error)) from None
        if login is None:
            raise _login_error("auth", _NOT_SIGNED_IN)
        self._cached = (version, login)
        return login

    def _version(self) -> object:
        """Return a value that changes with every write of the stored keys; None if none are stored."""
        try:
            stat = self._keys.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino


class _Send(Protocol):
    async def __call__(
        self, endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[RequestEvent], None] | None = None
    ) -> Reply: ...


class CodexSend:
    """Sends requests; for an endpoint with LOGIN_KEY, with the tokens of the stored login."""

    def __init__(self, send: _Send, logins: CodexLogins) -> None:
        self._send = send
        self._logins = logins
        # Its threads are awaited at the end of the process: a refresh that the server has answered must be stored.
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="perdure-codex")

    async def __call__(
        self, endpoint: Endpoint, request: ModelRequest, *, on_event: Callable[[RequestEvent], None] | None = None
    ) -> Reply:
        """Return the reply. Raises ProviderError."""
        if endpoint.provider == PROVIDER and not endpoint.api_key:
            raise _login_error("auth", _NOT_SIGNED_IN)
        if endpoint.api_key != LOGIN_KEY:
            return await self._send(endpoint, request, on_event=on_event)
        loop = asyncio.get_running_loop()
        login = await loop.run_in_executor(self._threads, self._logins.current)
        try:
            return await self._send(_sign(endpoint, login), request, on_event=on_event)
        except ProviderError as error:
            if error.verdict.kind != "auth" or error.partial_text:
                raise
        fresh = await loop.run_in_executor(self._threads, self._logins.renew, login)
        try:
            return await self._send(_sign(endpoint, fresh), request, on_event=on_event)
        except ProviderError as error:
            if error.verdict.kind != "auth" or error.partial_text:
                raise
            status = error.verdict.status
            raise _login_error("auth", f"Codex refuses the login, also with a fresh token; {_AGAIN}", status) from None


def _sign(endpoint: Endpoint, login: CodexLogin) -> Endpoint:
    headers = {**endpoint.headers, ACCOUNT_HEADER: login.account_id}
    return replace(endpoint, api_key=login.access_token, headers=headers)
