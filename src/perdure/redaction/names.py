"""Which names promise a secret: `AWS_SECRET_ACCESS_KEY` does, `max_tokens`, `public_key` and `password_hash` do not."""

from __future__ import annotations

import re
from enum import Enum

from perdure.core.memo import Memo


class Promise(Enum):
    """What a name says about its value, the surest first."""

    PASSWORD = "password"
    PHRASE = "passphrase"
    SECRET = "secret"
    TOKEN = "token"
    KEY = "key"


_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# Said after the name proper: DB_PASSWORD_PROD, API_KEY_2, SECRET_KEY_BASE.
_TRAILERS = re.compile(
    r"prod|production|dev|development|stage|staging|live|test|local|base|value|plain|raw|old|"
    r"new|b"
)
_PASSWORDS = ("password", "passwd", "passwort", "passcode", "passw", "pwd")
_WHOLE = {
    **dict.fromkeys(("pass", "pw", "sshpass"), Promise.PASSWORD),
    **dict.fromkeys(("passphrase", "mnemonic"), Promise.PHRASE),
    **dict.fromkeys(
        ("auth", "sid", "sessionid", "phpsessid", "jsessionid", "bearer", "jwt", "sas", "sig"), Promise.TOKEN
    ),
}
_KEYED = re.compile(
    r"api|access|secret|private|priv|auth|encryption|encrypt|signing|sign|signature|master|"
    r"account|storage|subscription|role|service|license|licence|app|application|deploy|shared|"
    r"session|client|security|admin|root|crypto|cipher|aes|hmac|jwt|webhook|function|functions|"
    r"consumer|write|ingest|ingestion|recovery|wallet|ssh|gpg|data|openai|anthropic|gemini|google|"
    r"groq|mistral|cohere|stripe|twilio|sendgrid|azure|aws|gcp|github|gitlab|slack|discord|maps"
)
_RUN_TOGETHER = re.compile(rf"\w*(?:{_KEYED.pattern})key")
# A token that is a place in a list, a unit of text or a switch opens nothing.
_OTHER_TOKENS = re.compile(
    r"page|next|prev|previous|continuation|continue|cursor|sync|start|end|eos|bos|pad|unk|stop|"
    r"cls|sep|mask|special|image|cancellation|cancel|max|min|num|total|prompt|input|output|"
    r"completion|count|first|last|current|per|by|lookahead|design|theme|color|syntax|"
    r"lexer|parser|identifier|string|keyword|operator|punctuation|resume|delta|change|marker|"
    r"idempotency|request|no|ident|is|has|use|needs|new|the|a|an|this|that|each|any|invalid|"
    r"bad|missing|expected"
)


def promise_of(name: str) -> Promise | None:
    """What the name promises, or None for a name that says nothing."""
    return _PROMISES[name]


def _promise_of(name: str) -> Promise | None:
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (_TRAILERS.fullmatch(words[-1]) or words[-1].isdigit()):
        words.pop()
    if not words or name == "PWD" or name == "OLDPWD":
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last.endswith(_PASSWORDS):
        return Promise.PASSWORD
    if last in _WHOLE:
        return _WHOLE[last] if before or last not in ("pass", "pw") or name.startswith("--") or name == "PASS" else None
    if last.endswith("secret") or _RUN_TOGETHER.fullmatch(last) or (last == "key" and _KEYED.fullmatch(before)):
        return Promise.SECRET
    if last.endswith("token"):
        return None if _OTHER_TOKENS.fullmatch(before or last.removesuffix("token")) else Promise.TOKEN
    if last == "key" and before and name.isupper():
        return Promise.KEY
    return None


_PROMISES: Memo[str, Promise | None] = Memo(_promise_of, max_bytes=2_000_000, bytes_per_char=4)
