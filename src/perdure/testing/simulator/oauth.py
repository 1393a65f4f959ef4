"""A simulated authorization server: the code grant with PKCE, the device grant, refresh tokens that are used once.

`/oauth/authorize` asks nothing and redirects at once, and a request to `/oauth/device?user_code=…` signs in at once, so
that both can be tried without an account.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from perdure.testing.simulator.rules import SimulatedRefusal

_PREFIX = "sim-access-"
_REQUIRED = ("client_id", "redirect_uri", "state", "code_challenge")


@dataclass(frozen=True, slots=True)
class _Code:
    client_id: str
    redirect_uri: str
    challenge: str


DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


class OAuthRefusal(Exception):
    """Raised to refuse a request with an OAuth 2.0 error code."""


class AuthorizationServer:
    """Issues and checks tokens. `lifetime_s` and `account_id` may be changed at any time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self.lifetime_s = 3_600.0
        self.account_id = "account-1"
        # Grant types of the token requests so far, refused ones included.
        self.grants: list[str] = []
        # A token request is answered this much later; how many have arrived.
        self.grant_delay_s = 0.0
        self.token_requests = 0
        # Whether a used refresh token stays valid until an access token of its successor was used, as with services
        # that bear a lost response.
        self.accepts_retries = False
        self.device_interval_s = 1.0
        self._codes: dict[str, _Code] = {}
        # Expiry of each access token, and the client of each refresh token.
        self._access: dict[str, float] = {}
        self._refresh: dict[str, str] = {}
        # Refresh tokens that were used, by the access token that replaces them.
        self._replaced: dict[str, str] = {}
        # Whether a device code was approved, by device code; user codes with theirs.
        self._devices: dict[str, bool] = {}
        self._user_codes: dict[str, str] = {}

    def authorize(self, query: str) -> str:
        """Return the URL to redirect the browser to, with a code. Raises OAuthRefusal."""
        parameters = dict(parse_qsl(query))
        is_pkce = parameters.get("response_type") == "code" and parameters.get("code_challenge_method") == "S256"
        if not is_pkce or not all(parameters.get(name) for name in _REQUIRED):
            raise OAuthRefusal("invalid_request")
        if urlsplit(parameters["redirect_uri"]).hostname not in ("localhost", "127.0.0.1"):
            raise OAuthRefusal("invalid_redirect_uri")
        code = secrets.token_urlsafe(16)
        self._codes[code] = _Code(parameters["client_id"], parameters["redirect_uri"], parameters["code_challenge"])
        return f"{parameters['redirect_uri']}?{urlencode({'code': code, 'state': parameters['state']})}"

    async def answer_token_request(self, body: bytes) -> dict[str, Any]:
        """Return the tokens after the delay, also to a client that is gone. Raises OAuthRefusal."""
        self.token_requests += 1
        await asyncio.sleep(self.grant_delay_s)
        return self.grant(body)

    def grant(self, body: bytes) -> dict[str, Any]:
        """Return the tokens for a code or a refresh token, each of which is used once. Raises OAuthRefusal."""
        form = dict(parse_qsl(body.decode("latin-1")))
        kind = form.get("grant_type", "")
        self.grants.append(kind)
        if kind == "authorization_code":
            self._redeem_code(form)
        elif kind == "refresh_token":
            return self._rotate(form.get("refresh_token", ""), form.get("client_id", ""))
        elif kind == DEVICE_GRANT:
            self._redeem_device(form.get("device_code", ""))
        else:
            raise OAuthRefusal("unsupported_grant_type")
        return self._issue(form["client_id"])

    def begin_device(self, root_url: str) -> dict[str, Any]:
        """Return a code for another device (RFC 8628)."""
        device, user = secrets.token_urlsafe(24), f"{secrets.token_hex(2)}-{secrets.token_hex(2)}".upper()
        self._devices[device], self._user_codes[user] = False, device
        url = f"{root_url}/oauth/device"
        return {
            "device_code": device,
            "user_code": user,
            "verification_uri": url,
            "verification_uri_complete": f"{url}?user_code={user}",
            "expires_in": 900,
            "interval": self.device_interval_s,
        }

    def approve_device(self, query: str) -> None:
        """Sign in with the code of a device. Raises OAuthRefusal."""
        device = self._user_codes.pop(dict(parse_qsl(query)).get("user_code", "").strip().upper(), None)
        if device is None:
            raise OAuthRefusal("invalid_user_code")
        self._devices[device] = True

    def check(self, key: str, headers: Mapping[str, str]) -> bool:
        """Return whether the key is an access token; raise SimulatedRefusal for an expired one or a wrong account."""
        if not key.startswith(_PREFIX):
            return False
        is_valid = self._access.get(key, 0.0) > self._now_s()
        if not is_valid or headers.get("chatgpt-account-id") != self.account_id:
            text = "Provided authentication token is expired or is of another account."
            raise SimulatedRefusal(
                text, rule=None, status=401, error_type="invalid_request_error", code="token_expired"
            )
        self._refresh.pop(self._replaced.pop(key, ""), None)
        return True

    def revoke_access(self) -> None:
        """Refuse all access tokens from now on; refresh tokens stay valid."""
        self._access.clear()

    def revoke_all(self) -> None:
        """Refuse all tokens from now on."""
        self._access.clear()
        self._refresh.clear()

    def _redeem_code(self, form: Mapping[str, str]) -> None:
        code = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if code != _Code(form.get("client_id", ""), form.get("redirect_uri", ""), challenge):
            raise OAuthRefusal("invalid_grant")

    def _redeem_device(self, device: str) -> None:
        if device not in self._devices:
            raise OAuthRefusal("expired_token")
        if not self._devices[device]:
            raise OAuthRefusal("authorization_pending")
        del self._devices[device]

    def _rotate(self, token: str, client_id: str) -> dict[str, Any]:
        if self._refresh.get(token) != client_id:
            raise OAuthRefusal("refresh_token_reused")
        answer = self._issue(client_id)
        if self.accepts_retries:
            self._replaced[answer["access_token"]] = token
        else:
            del self._refresh[token]
        return answer

    def _issue(self, client_id: str) -> dict[str, Any]:
        access, refresh = f"{_PREFIX}{secrets.token_urlsafe(24)}", f"sim-refresh-{secrets.token_urlsafe(24)}"
        self._access[access] = self._now_s() + self.lifetime_s
        self._refresh[refresh] = client_id
        claims = {"https://api.openai.com/auth": {"chatgpt_account_id": self.account_id}}
        return {
            "access_token": access,
            "refresh_token": refresh,
            "id_token": ".".join((_segment({"alg": "none"}), _segment(claims), "signature")),
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }


def _segment(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
