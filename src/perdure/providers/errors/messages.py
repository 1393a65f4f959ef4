"""Build ProviderErrors with one-line messages: what failed, where, and what to try."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from perdure.config.env import FILE, variable_with_value
from perdure.core.error_policy import POLICIES
from perdure.core.errors import ErrorKind, ErrorVerdict, ProviderError
from perdure.providers.errors.body import MAX_WAIT_S, strip_tags
from perdure.providers.http import LONG_WAIT_S, is_html, url_of
from perdure.providers.local import embedded_notice
from perdure.providers.registry import find_provider, login_target
from perdure.providers.types import Endpoint

# Limit for quoted error text: HTML pages and stack traces are cut here.
QUOTE_CHARS = 300
READ_CHARS = 4000
_MIN_KEY_CHARS = 12

_MODEL_WORDS = re.compile(r"\bmodel\b|deployment", re.IGNORECASE)
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_USERINFO = re.compile(r"^(\w+://)[^/@]*@")
# OpenSSL's verify codes: a self-signed certificate, one of a chain, no issuer, an issuer that is not an authority.
_UNKNOWN_AUTHORITY = (18, 19, 20, 21, 24, 79)
_NAME_MISMATCH = (62, 64)
# OpenSSL reasons for a response that is not TLS, by version.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
# The service accepted the request but a proxy timed out: 408, nginx's 499.
_TIMEOUT_STATUSES = (408, 499)
# Overloaded: the request was not processed.
_OVERLOADED_STATUSES = (503, 529)
_UNSENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"})
_KEY = re.compile(r"\b(sk|key|gsk|xai|or)-[A-Za-z0-9_\-*]{6,}")


@dataclass(frozen=True, slots=True)
class EndpointLabel:
    """The name of an endpoint in error messages; removes its API key from quoted text."""

    host: str
    base_url: str
    model: str
    provider: str
    # URL of the model list.
    models_url: str
    # What to check where the address is wrong.
    address_name: str
    # The API key, removed from quoted text.
    secret: str = field(default="", repr=False)
    # Whether the caller's SDK client has the key.
    is_of_client: bool = False

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointLabel:
        # A password in the URL is as secret as a key.
        base_url = _USERINFO.sub(r"\1", endpoint.base_url)
        host = base_url.partition("://")[2].partition("/")[0] or base_url or endpoint.provider
        models_path = "/v1/models" if endpoint.api_mode == "anthropic_messages" else "/models"
        models_url = url_of(base_url, models_path)
        return cls(
            host,
            base_url,
            endpoint.model,
            endpoint.provider,
            models_url,
            endpoint.address_name,
            endpoint.api_key or "",
            endpoint.is_of_client,
        )

    def quote(self, text: str) -> str:
        """Quote text in one line, without the API key."""
        quoted = quote(text)
        # Dummy keys ("none", "ollama") are not secret, and replacing them would garble the text.
        if len(self.secret) >= _MIN_KEY_CHARS:
            quoted = quoted.replace(self.secret, "[key]")
        return _KEY.sub("[key]", quoted)


def call_error(
    label: EndpointLabel, kind: ErrorKind, line: str, *, status: int | None = None, partial: str = ""
) -> ProviderError:
    """Build a ProviderError for a failure detected here."""
    return ProviderError(ErrorVerdict(kind=kind, message=line, status=status), label.host, partial_text=partial)


def refusal_error(label: EndpointLabel, verdict: ErrorVerdict, *, partial: str = "") -> ProviderError:
    """Build a ProviderError from the service's own error message, with a hint for the user appended."""
    if verdict.kind == "transport" and verdict.status is None:
        # Raised while parsing the reply: the message is our own already.
        return ProviderError(verdict, label.host, partial_text=partial)
    quoted = label.quote(verdict.message) or "no reason given"
    code = f" ({verdict.status})" if verdict.status else ""
    line = f"{_summary(label, verdict)}{code}: {quoted.rstrip('.')}.{_hint(label, verdict)}"
    # The client's own key: no command prints another one.
    remedy = "" if label.is_of_client and verdict.kind == "auth" else verdict.remedy
    return ProviderError(replace(verdict, message=line, remedy=remedy), label.host, partial_text=partial)


def network_error(label: EndpointLabel, error: BaseException, *, partial: str = "") -> ProviderError:
    """Build a ProviderError of kind `transport` for a network failure."""
    quoted = bool(partial)
    return call_error(label, "transport", _network_line(label, error, has_started=quoted), partial=partial)


def not_an_api_error(label: EndpointLabel, status: int, body: bytes, *, partial: str = "") -> ProviderError:
    """Build the error for a response that is neither JSON nor an event stream."""
    text = body[: 4 * READ_CHARS].decode("utf-8", "replace")
    what = "a web page" if is_html(body) else "something that is not a model's reply"
    quoted = label.quote(text)
    line = f"responded with {what}" + (f": {quoted!r}" if quoted else "")
    line += f". Is {label.base_url} the API's address? It usually ends in /v1."
    return call_error(label, "transport", line, status=status, partial=partial)


def invalid_header_error(label: EndpointLabel, name: str) -> ProviderError:
    """Build the error for an invalid header; never quotes its value, which may be a key."""
    if name.lower() in _KEY_HEADERS:
        line = "the API key contains a blank, a line break or an invalid character"
        line += f".{_key_hint(label)}"
        return call_error(label, "auth", line)
    return call_error(label, "bad_request", f"the header {name!r} contains a character that cannot be sent: check it.")


def quote(text: str) -> str:
    """Return text as one line without tags, cut to QUOTE_CHARS."""
    plain = " ".join(strip_tags(text[:READ_CHARS]).split())
    return plain if len(plain) <= QUOTE_CHARS else plain[: QUOTE_CHARS - 1] + "…"


def is_worth_retrying(error: BaseException) -> bool:
    """Whether a retry may succeed; not for an unknown host or a bad certificate."""
    causes = _causes(error)
    if any(_is_tls_failure(c) for c in causes):
        return False
    resolving = next((c for c in causes if isinstance(c, socket.gaierror)), None)
    return resolving is None or resolving.errno == socket.EAI_AGAIN


def is_refusal_status(status: int) -> bool:
    """Whether this status means the request was refused; a gateway timeout may hide a billed reply."""
    return (400 <= status < 500 and status not in _TIMEOUT_STATUSES) or status in _OVERLOADED_STATUSES


def is_refusal(verdict: ErrorVerdict) -> bool:
    """Whether an error means that no reply was generated."""
    return POLICIES[verdict.kind].is_free or (verdict.status is not None and is_refusal_status(verdict.status))


def was_never_sent(error: BaseException) -> bool:
    """Whether the connection failed before the request was sent."""
    causes = _causes(error)
    names = {type(c).__name__ for c in causes}
    is_refused = any(
        isinstance(c, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError) for c in causes
    )
    return is_refused or bool(names & _UNSENT)


def _summary(label: EndpointLabel, verdict: ErrorVerdict) -> str:
    if verdict.kind == "auth":
        return "the key was refused" if verdict.status != 403 else "this key may not do that"
    if verdict.status == 404:
        return f"no model {label.model!r} here" if _MODEL_WORDS.search(verdict.message) else "nothing at this address"
    return _SUMMARIES.get(verdict.kind, "the call failed")


_SUMMARIES: dict[str, str] = {
    "prompt_too_long": "the prompt is too long",
    "output_cap": "max_tokens is too large",
    "rate_limit": "too many requests",
    "overloaded": "the service is overloaded",
    "quota": "no credit left",
    "bad_request": "the request was rejected",
    "transport": "the service is unavailable",
}


def _hint(label: EndpointLabel, verdict: ErrorVerdict) -> str:
    if verdict.kind == "auth":
        return _key_hint(label)
    if verdict.status == 404 and _MODEL_WORDS.search(verdict.message):
        offered = f"what {label.host} offers: `perdure models`, or {label.models_url}"
        embedded = f"; {notice}" if (notice := embedded_notice(label.model)) else ""
        return f" Check the model's name (`model.name`, or -m); {offered}{embedded}."
    if verdict.status == 404:
        is_root = not urlsplit(label.base_url).path.strip("/")
        advice = f", now {label.base_url}. Most end in /v1: try {label.base_url.rstrip('/')}/v1." if is_root else ""
        return f" Check {label.address_name}{advice or f', now {label.base_url}.'}"
    if verdict.kind != "quota" and verdict.retry_after_s is not None and verdict.retry_after_s > LONG_WAIT_S:
        return f" The service asks to wait {_duration(verdict.retry_after_s)}, which is too long to wait for here."
    if verdict.kind == "quota":
        return f" Top up the account at {label.provider!r}, or choose another model."
    return ""


def _key_hint(label: EndpointLabel) -> str:
    if label.is_of_client:
        return " It is that of the client handed in with client=: make another client with a key that is valid."
    login = f"`perdure login {login_target(label.provider, label.base_url)}`"
    if not label.secret:
        return f" No key was sent: {login} stores one."
    spec = find_provider(label.provider)
    variables = spec.key_variables if spec is not None else ()
    if variable := variable_with_value(variables, label.secret):
        return f" It is that of the variable {variable}, which goes before a stored one: correct it, or unset it."
    return f" {login} stores another key; `perdure doctor` shows where the present one is read from."


def _duration(wait_s: float) -> str:
    for unit, unit_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if wait_s >= 2 * unit_s:
            more = "more than " if wait_s >= MAX_WAIT_S else ""
            return f"{more}{round(wait_s / unit_s)} {unit}s"
    return f"{round(wait_s)} seconds"


def _causes(error: BaseException) -> list[BaseException]:
    """Return the exception and its causes, innermost last."""
    chain: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending and len(chain) < 20:
        item = pending.pop()
        if item is None or item in chain:
            continue
        chain.append(item)
        pending += [item.__cause__, item.__context__]
        pending += getattr(item, "exceptions", ())
    return chain


def _is_tls_failure(error: BaseException) -> bool:
    """Whether this is a TLS failure; a handshake that waits for data is not."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError)


def _tls_advice(error: ssl.SSLError, check: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _NAME_MISMATCH:
            return f"the certificate is for another name; {check}."
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return f"if you trust who signed it, name their certificate's file in {FILE}; else {check}."
        return f"{check} and the server's certificate."
    if error.reason in _NO_TLS:
        return f"the server there may speak plain http://; {check}."
    return f"{check} and the server's certificate."


def _network_line(label: EndpointLabel, error: BaseException, *, has_started: bool) -> str:
    causes = _causes(error)
    check = f"check {label.address_name} ({label.base_url})"
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"no such host, or no network: {check} and your connection."
        if isinstance(cause, ssl.SSLError) and _is_tls_failure(cause):
            return f"the secure connection failed ({label.quote(str(cause))}): {_tls_advice(cause, check)}"
        if isinstance(cause, ConnectionRefusedError) or getattr(cause, "errno", None) == errno.ECONNREFUSED:
            return f"nothing is listening there: start the server, or {check}."
        if getattr(cause, "errno", None) in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return "the network is unreachable: check your connection."
    names = {type(c).__name__ for c in causes}
    if "ConnectTimeout" in names:
        return f"no answer to the connection attempt: {check} and your connection."
    if names & {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return f"{label.base_url!r} is not a valid URL ({label.quote(str(error))}): it looks like https://host/v1."
    if "ConnectError" in names and "all connection attempts failed" in str(error).lower():
        return f"nothing is listening there: start the server, or {check}."
    if "ConnectError" in names:
        return f"could not connect ({label.quote(str(error))}): {check} and your connection."
    when = "in the middle of the reply" if has_started else "before the reply"
    why = label.quote(str(error)) or type(error).__name__
    return f"the connection was lost {when} ({why})."
