"""What went wrong with a call, as a verdict and one line a person can act on: what, where, what to try."""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from perdure.config.env import FILE
from perdure.core.error_policy import POLICIES
from perdure.core.errors import ErrorKind, ErrorVerdict, ProviderError
from perdure.providers.errors.body import strip_tags
from perdure.providers.errors.retry_after import MAX_WAIT_S
from perdure.providers.http import url_of
from perdure.providers.timeouts import LONG_WAIT_S
from perdure.providers.types import Endpoint

# A service's own words are quoted, never poured out: an HTML page or a stack trace is cut here.
QUOTE_CHARS = 300
READ_CHARS = 4000
_LEAST_KEY_CHARS = 12

_MODEL_WORDS = re.compile(r"\bmodel\b|deployment", re.IGNORECASE)
_SENDABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?|")
_KEY_HEADERS = ("authorization", "x-api-key", "api-key")
_SIGN_IN = re.compile(r"^(\w+://)[^/@]*@")
# OpenSSL's verify codes: a self-signed certificate, one of a chain, no issuer, an issuer that is no authority.
_UNKNOWN_AUTHORITY = (18, 19, 20, 21, 24, 79)
_OTHER_NAME = (62, 64)
# What an answer that is no TLS at all is taken for, in one OpenSSL and another.
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")
# A service that took the request and was too slow for somebody in between: 408, nginx's 499.
_CUT_SHORT = (408, 499)
# Overloaded: nobody looked at the request.
_TURNED_AWAY = (503, 529)
_UNSENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"})
_KEY = re.compile(r"\b(sk|key|gsk|xai|or)-[A-Za-z0-9_\-*]{6,}")


@dataclass(frozen=True, slots=True)
class EndpointLabel:
    """Where a call went, in the words an error line needs."""

    host: str
    base_url: str
    model: str
    provider: str
    # Where it lists its models.
    models_url: str
    # What must not be quoted, even where a service repeats it.
    secret: str = field(default="", repr=False)

    @classmethod
    def of(cls, endpoint: Endpoint) -> EndpointLabel:
        # A password in the address is as secret as a key.
        base_url = _SIGN_IN.sub(r"\1", endpoint.base_url)
        host = base_url.partition("://")[2].partition("/")[0] or base_url or endpoint.provider
        models_path = "/v1/models" if endpoint.api_mode == "anthropic_messages" else "/models"
        models_url = url_of(base_url, models_path)
        return cls(host, base_url, endpoint.model, endpoint.provider, models_url, endpoint.api_key or "")

    def quote(self, text: str) -> str:
        """What was said, in one line, without the key."""
        said = quote(text)
        # Stand-ins for a key ("none", "ollama", a letter) are no secret, and words would be torn apart.
        if len(self.secret) >= _LEAST_KEY_CHARS:
            said = said.replace(self.secret, "[key]")
        return _KEY.sub("[key]", said)


def call_error(
    place: EndpointLabel, kind: ErrorKind, line: str, *, status: int | None = None, partial: str = ""
) -> ProviderError:
    """A failure we found out ourselves, as the one exception callers look at."""
    return ProviderError(ErrorVerdict(kind=kind, message=line, status=status), place.host, partial_text=partial)


def refusal_error(place: EndpointLabel, verdict: ErrorVerdict, *, partial: str = "") -> ProviderError:
    """What the service said, with advice behind its own words."""
    if verdict.kind == "transport" and verdict.status is None:
        # Found out while reading the reply: the line is our own already.
        return ProviderError(verdict, place.host, partial_text=partial)
    said = place.quote(verdict.message) or "no reason given"
    code = f" ({verdict.status})" if verdict.status else ""
    line = f"{_what(place, verdict)}{code}: {said.rstrip('.')}.{_try(place, verdict)}"
    return ProviderError(replace(verdict, message=line), place.host, partial_text=partial)


def network_error(place: EndpointLabel, error: BaseException, *, partial: str = "") -> ProviderError:
    """A call the network took, as a verdict of kind `transport`."""
    said = bool(partial)
    return call_error(place, "transport", _network_line(place, error, has_started=said), partial=partial)


def not_an_api_error(place: EndpointLabel, status: int, body: bytes, *, partial: str = "") -> ProviderError:
    """An answer that is neither the JSON nor the stream that was asked for."""
    text = body[: 4 * READ_CHARS].decode("utf-8", "replace")
    what = "a web page" if is_html(body) else "something that is not a model's reply"
    heard = place.quote(text)
    line = f"answered with {what}" + (f": {heard!r}" if heard else "")
    line += f". Is {place.base_url} the API's address? It usually ends in /v1."
    return call_error(place, "transport", line, status=status, partial=partial)


def find_invalid_header(headers: Mapping[str, str]) -> str | None:
    """The name of a header whose value HTTP cannot carry; a key pasted with a line break is one."""
    return next((name for name, value in headers.items() if not _SENDABLE.fullmatch(value)), None)


def invalid_header_error(place: EndpointLabel, name: str) -> ProviderError:
    """Names the header, never its value: that may be a key."""
    if name.lower() in _KEY_HEADERS:
        line = "the key holds a blank, a line break or a character no key has"
        line += f". Check the key for {place.provider!r}: `perdure doctor` shows where it is read from."
        return call_error(place, "auth", line)
    return call_error(place, "bad_request", f"the header {name!r} holds a character that cannot be sent: check it.")


def is_html(body: bytes) -> bool:
    return body.lstrip()[:1] == b"<"


def quote(text: str) -> str:
    """One line of what was said, tags and blank space taken out, cut to a length a terminal shows."""
    plain = " ".join(strip_tags(text[:READ_CHARS]).split())
    return plain if len(plain) <= QUOTE_CHARS else plain[: QUOTE_CHARS - 1] + "…"


def is_worth_retrying(error: BaseException) -> bool:
    """Whether the same call may fare better in a moment: a name nobody knows or a bad certificate will not."""
    causes = _causes(error)
    if any(_is_tls_failure(c) for c in causes):
        return False
    resolving = next((c for c in causes if isinstance(c, socket.gaierror)), None)
    return resolving is None or resolving.errno == socket.EAI_AGAIN


def is_refusal_status(status: int) -> bool:
    """Whether such an answer was refused at the door; a gateway's timeout may hide a reply that is billed."""
    return (400 <= status < 500 and status not in _CUT_SHORT) or status in _TURNED_AWAY


def is_refusal(verdict: ErrorVerdict) -> bool:
    """Whether an error that came in a reply's place tells that no reply was made."""
    return POLICIES[verdict.kind].is_free or (verdict.status is not None and is_refusal_status(verdict.status))


def was_never_sent(error: BaseException) -> bool:
    """Whether the connection failed before the request could reach anybody."""
    causes = _causes(error)
    names = {type(c).__name__ for c in causes}
    is_refused = any(
        isinstance(c, ConnectionRefusedError | socket.gaierror | ssl.SSLCertVerificationError) for c in causes
    )
    return is_refused or bool(names & _UNSENT)


def header(headers: Mapping[str, str], name: str) -> str:
    return next((v for k, v in headers.items() if k.lower() == name), "")


def _what(place: EndpointLabel, verdict: ErrorVerdict) -> str:
    if verdict.kind == "auth":
        return "the key was refused" if verdict.status != 403 else "this key may not do that"
    if verdict.status == 404:
        return f"no model {place.model!r} here" if _MODEL_WORDS.search(verdict.message) else "nothing at this address"
    return _WORDS.get(verdict.kind, "the call failed")


_WORDS: dict[str, str] = {
    "prompt_too_long": "the prompt is too long",
    "output_cap": "max_tokens is too large",
    "rate_limit": "too many requests",
    "overloaded": "the service is overloaded",
    "quota": "no credit left",
    "bad_request": "the request was rejected",
    "transport": "the service is not to be had right now",
}


def _try(place: EndpointLabel, verdict: ErrorVerdict) -> str:
    if verdict.kind == "auth":
        return f" Check the key for {place.provider!r}: `perdure doctor` shows where it is read from."
    if verdict.status == 404 and _MODEL_WORDS.search(verdict.message):
        return f" Check `model.name`; what {place.host} offers is listed at {place.models_url}."
    if verdict.status == 404:
        return f" Check `model.base_url`, now {place.base_url}."
    if verdict.kind != "quota" and verdict.retry_after_s is not None and verdict.retry_after_s > LONG_WAIT_S:
        return f" The service asks to wait {_duration(verdict.retry_after_s)}, which is too long to wait for here."
    if verdict.kind == "quota":
        return f" Top up the account at {place.provider!r}, or choose another model."
    return ""


def _duration(wait_s: float) -> str:
    for unit, unit_s in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if wait_s >= 2 * unit_s:
            more = "more than " if wait_s >= MAX_WAIT_S else ""
            return f"{more}{round(wait_s / unit_s)} {unit}s"
    return f"{round(wait_s)} seconds"


def _causes(error: BaseException) -> list[BaseException]:
    """The exception and everything it was raised from, innermost last."""
    found: list[BaseException] = []
    pending: list[BaseException | None] = [error]
    while pending and len(found) < 20:
        one = pending.pop()
        if one is None or one in found:
            continue
        found.append(one)
        pending += [one.__cause__, one.__context__]
        pending += getattr(one, "exceptions", ())
    return found


def _is_tls_failure(error: BaseException) -> bool:
    """Not a handshake that merely waits for the other side: what ended that says why."""
    return isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLWantReadError | ssl.SSLWantWriteError)


def _tls_advice(error: ssl.SSLError, check: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAME:
            return f"the certificate is for another name; {check}."
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return f"if you trust who signed it, name their certificate's file in {FILE}; else {check}."
        return f"{check} and the server's certificate."
    if error.reason in _NO_TLS:
        return f"the server there may speak plain http://; {check}."
    return f"{check} and the server's certificate."


def _network_line(place: EndpointLabel, error: BaseException, *, has_started: bool) -> str:
    causes = _causes(error)
    check = f"check `model.base_url` ({place.base_url})"
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            return f"no such host, or no network: {check} and your connection."
        if isinstance(cause, ssl.SSLError) and _is_tls_failure(cause):
            return f"the secure connection failed ({place.quote(str(cause))}): {_tls_advice(cause, check)}"
        if isinstance(cause, ConnectionRefusedError) or getattr(cause, "errno", None) == errno.ECONNREFUSED:
            return f"nothing is listening there: start the server, or {check}."
        if getattr(cause, "errno", None) in (errno.ENETUNREACH, errno.EHOSTUNREACH):
            return "no way there from this machine: check your network connection."
    names = {type(c).__name__ for c in causes}
    if "ConnectTimeout" in names:
        return f"no answer to the connection attempt: {check} and your connection."
    if names & {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return f"{place.base_url!r} is no address a call can go to ({place.quote(str(error))}): it looks like https://host/v1."
    if "ConnectError" in names and "all connection attempts failed" in str(error).lower():
        return f"nothing is listening there: start the server, or {check}."
    if "ConnectError" in names:
        return f"could not connect ({place.quote(str(error))}): {check} and your connection."
    when = "in the middle of the reply" if has_started else "before a reply came"
    why = place.quote(str(error)) or type(error).__name__
    return f"the connection was lost {when} ({why}); nothing was kept, try again."
