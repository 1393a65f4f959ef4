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
    **dict.fromkeys(("credential", "credentials", "creds", "pat"), Promise.TOKEN),
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
# A key that finds, orders or names something opens nothing.
_OTHER_KEY_WORDS = """
cache primary foreign sort sorting order ordering partition row column col object obj idempotency idempotent public
pub publishable cursor index hash dict map json yaml config group grouping range routing route message msg dedup
dedupe deduplication lookup lock mutex registry answer file path url uri name field attribute attr property prop
translation translate trans locale lang language label i18n intl hot short shortcut cmd ctrl alt shift arrow enter
escape esc tab function fn home end up down left right page space delete del insert backspace composite natural
surrogate unique candidate alternate super tag event job task step run build artifact content document doc record item
entity node edge list array state store redis memo memoization query result request response header param parameter
variable var env bucket s3 blob shard bind binding context scope rate limit throttle feature flag sample test legacy
next last first start prev previous current old new any each every this that the a an no one same websocket socket
host known join merge match compare comparison ranking rank search filter facet menu nav icon theme style css color
react component widget view screen layout chart series axis legend category type kind class model table database
schema journal thread conversation channel topic queue stream checksum version commit branch git fingerprint trace
span metric log error dictionary symbol pressed press release repeat device physical virtual scan keyboard music piano
major minor
"""
_OTHER_KEYS = frozenset(_OTHER_KEY_WORDS.split())
_RUN_TOGETHER = re.compile(rf"\w*(?:{_KEYED.pattern})key")
# A token that is a place in a list, a unit of text or a switch opens nothing.
_OTHER_TOKENS = re.compile(
    r"page|next|prev|previous|continuation|continue|cursor|sync|start|end|eos|bos|pad|unk|stop|"
    r"cls|sep|mask|special|image|cancellation|cancel|max|min|num|total|prompt|input|output|"
    r"completion|count|first|last|current|per|by|lookahead|design|theme|color|syntax|"
    r"lexer|parser|identifier|string|keyword|operator|punctuation|resume|delta|change|marker|"
    r"idempotency|request|no|ident|is|has|use|needs|new|the|a|an|this|that|each|any|invalid|"
    r"bad|missing|expected|lock|upload|export|import|ratelimit|client"
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
        is_whole = before or last not in ("pass", "pw", "pat") or name.startswith("--") or name in ("PASS", "PAT")
        return _WHOLE[last] if is_whole else None
    if last.endswith("secret") or _RUN_TOGETHER.fullmatch(last) or (last == "key" and _KEYED.fullmatch(before)):
        return Promise.SECRET
    if last.endswith("token"):
        return None if _OTHER_TOKENS.fullmatch(before or last.removesuffix("token")) else Promise.TOKEN
    if last == "key" and len(before) > 1 and before not in _OTHER_KEYS:
        return Promise.KEY
    return None


def names_an_issuer(name: str) -> bool:
    """Whether the name says more than `token` does: the token of a service may be a UUID, any other UUID is an id."""
    return len(_WORDS.findall(name)) > 1


_PROMISES: Memo[str, Promise | None] = Memo(_promise_of, max_bytes=2_000_000, bytes_per_char=4)
