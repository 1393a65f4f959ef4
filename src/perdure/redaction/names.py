"""Names that announce a secret, and the values that may follow them."""

from __future__ import annotations

import re
from enum import Enum

from perdure.core.datastructures import Memo
from perdure.redaction.entropy import (
    class_switches,
    is_filler,
    is_identifier,
    is_stand_in,
    is_uuid,
    is_wordy,
    looks_random,
)


class SecretKind(Enum):
    """The kind of secret that a name announces, the most reliable names first."""

    PASSWORD = "password"
    PHRASE = "passphrase"
    SECRET = "secret"
    TOKEN = "token"
    KEY = "key"


_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
# Suffixes of a name: DB_PASSWORD_PROD, API_KEY_2, SECRET_KEY_BASE.
_TRAILERS = re.compile(
    r"prod|production|dev|development|stage|staging|live|test|local|base|value|plain|raw|old|"
    r"new|b|v|string|primary|secondary|private"
)
_PASSWORDS = ("password", "passwd", "passwort", "passcode", "passw", "pwd")
_WHOLE = {
    **dict.fromkeys(("pass", "pw", "sshpass"), SecretKind.PASSWORD),
    **dict.fromkeys(("passphrase", "mnemonic"), SecretKind.PHRASE),
    **dict.fromkeys(("credential", "credentials", "creds", "pat"), SecretKind.TOKEN),
    **dict.fromkeys(
        ("auth", "sid", "sessionid", "phpsessid", "jsessionid", "bearer", "jwt", "sas", "sig"), SecretKind.TOKEN
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


def kind_of_name(name: str) -> SecretKind | None:
    """Return the kind of secret that the name announces, or None."""
    return _KINDS[name]


def _kind_of_name(name: str) -> SecretKind | None:
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and (_TRAILERS.fullmatch(words[-1]) or words[-1].isdigit()):
        words.pop()
    if not words or name == "PWD" or name == "OLDPWD":
        return None
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last.endswith(_PASSWORDS):
        return SecretKind.PASSWORD
    if last in _WHOLE:
        is_whole = before or last not in ("pass", "pw", "pat") or name.startswith("--") or name in ("PASS", "PAT")
        return _WHOLE[last] if is_whole else None
    if (
        last.endswith("secret")
        or last == "keystring"
        or _RUN_TOGETHER.fullmatch(last)
        or (last == "key" and _KEYED.fullmatch(before))
    ):
        return SecretKind.SECRET
    if last.endswith("token"):
        return None if _OTHER_TOKENS.fullmatch(before or last.removesuffix("token")) else SecretKind.TOKEN
    if last == "key" and len(before) > 1 and before not in _OTHER_KEYS:
        return SecretKind.KEY
    return None


_STATES = frozenset(("bad", "missing", "expected", "invalid", "use", "needs", "is", "has", "by", "client", "upload"))
# Articles and the like, without meaning for the noun after them.
_PLAIN_WORDS = frozenset(
    (
        "the",
        "a",
        "an",
        "this",
        "that",
        "no",
        "any",
        "each",
        "every",
        "one",
        "same",
        "new",
        "old",
        "current",
        "previous",
        "last",
        "first",
        "next",
    )
)


def is_harmless_key(word: str) -> bool:
    """Whether the word before `key` shows that it is not a secret: `sort key`, `public key`, `arrow key`.

    False for articles and the like (`the key`), which carry no information about it.
    """
    return word.lower() in _OTHER_KEYS and word.lower() not in _PLAIN_WORDS


def is_harmless_token(word: str) -> bool:
    """Whether the word before `token` shows that it is not a secret: a page cursor, a unit of text or a switch."""
    return _OTHER_TOKENS.fullmatch(word.lower()) is not None and word.lower() not in _PLAIN_WORDS | _STATES


def names_an_issuer(name: str) -> bool:
    """Whether the name identifies an issuer: only then may a UUID be a token rather than an id."""
    return len(_WORDS.findall(name)) > 1


_KINDS: Memo[str, SecretKind | None] = Memo(_kind_of_name, max_bytes=2_000_000, bytes_per_char=4)


_JUDGED = 400
_HEX = re.compile(r"[0-9a-fA-F]+")
_JOINTS = re.compile(r"[-_.]")
_LETTERS = re.compile(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}")
_INTERPOLATED = re.compile(r"\$\{|\$\(|\{\{|\{[\w.]*\}|%[sdvr(]|#\{|\\\(|<[a-z][\w -]*>|\+ *[\"']")
_CODE = re.compile(
    r"\w\(|\w\[|\(\)|=>|->|::|&&|\|\||^\*|^[!&]\w+$|^[\[{(]|^new$|^(?:await|async|lambda|function|return)$"
)
_PATTERN = re.compile(r"^\^|\(\?|\.\*|\\[dwsb]|\[[a-zA-Z]-|required|min:|max:")
_PLACE = re.compile(r"(?:\.{0,2}/|~/|[A-Za-z]:[\\/]|[a-z][a-z0-9+.-]*://|\.\w|#\w)")
_COMMON = re.compile(
    r"postgres|postgresql|root|admin|letmein|qwerty|swordfish|guest|toor|welcome|changeit|dragon|"
    r"monkey|iloveyou|sunshine|princess|football|baseball|superman|trustno|hunter|shadow|ninja|"
    r"azerty|mysql|mariadb|redis|rabbitmq|minio|sa"
)


class Form(Enum):
    """The notation of a value (quoted, bare, in prose …), which limits how far it may be code or prose."""

    QUOTED = "quoted"
    SETTING = "setting"
    BARE = "bare"
    CODE = "code"
    PROSE = "prose"


def is_secret(name: str, kind: SecretKind, whole: str, form: Form) -> bool:
    value = whole[:_JUDGED]
    if is_stand_in(value) or _INTERPOLATED.search(value) or (_CODE.search(value) and form is not Form.QUOTED):
        return False
    if _PLACE.match(value) and not (len(value) >= 32 and looks_random(value) and re.fullmatch(r"[\w+/=]+", value)):
        return False
    if kind is SecretKind.PHRASE and form is Form.QUOTED and value.count(" ") >= 2:
        return not re.search(r"(?i)phrase|enter|your|required|[.?!]$", value)
    if kind in (SecretKind.PASSWORD, SecretKind.PHRASE):
        return _is_password(value, form)
    if is_uuid(value):
        return kind is SecretKind.SECRET or (kind is SecretKind.TOKEN and names_an_issuer(name)) or name.isupper()
    if kind is SecretKind.KEY:
        is_long = len(value) >= (20 if _HEX.fullmatch(value) or form is Form.CODE else 12)
        return is_long and is_random(value) and not (form is Form.CODE and "." in value)
    if form is Form.CODE and is_identifier(value):
        return len(value) >= 16 and looks_random(value)
    if (
        kind is SecretKind.SECRET
        and form is Form.SETTING
        and len(value) >= 8
        and (value.isalnum() or not re.search("key|secret|token", value))
    ):
        return True
    if kind is SecretKind.SECRET and form is Form.QUOTED and value.isdigit():
        return len(value) >= 14 and "12345678" not in value
    if " " in value:
        return False
    return looks_random(value) or _is_long_mix(value) or (len(value) >= 16 and is_random(value))


def _is_long_mix(value: str) -> bool:
    """Whether a value is words run together with digits, as people invent keys: `supersecretkey12345`."""
    return (
        len(value) >= 12
        and bool(re.fullmatch(r"(?=[^\d]*\d)(?=\d*[^\d])[A-Za-z0-9+/=!@#$%^&*]+", value))
        and not is_identifier(value)
    )


def _is_password(value: str, form: Form) -> bool:
    has_digit, has_letter = bool(re.search(r"\d", value)), bool(re.search(r"[A-Za-z]", value))
    has_special = re.search(r"[^\w\s.:/\\,()'\"-]", value[1:]) is not None
    if _PATTERN.search(value) or (not value.isprintable() and not has_letter):
        return False
    if form is Form.CODE and is_identifier(value):
        return len(value) >= 12 and looks_random(value)
    if re.search(r"\s", value):
        return form is Form.QUOTED and has_special and has_digit and not is_wordy(value)
    if form is Form.SETTING:
        return True
    if has_digit and has_letter:
        return len(value) >= (6 if form is Form.PROSE else 4)
    if has_digit and not has_letter:
        return form is not Form.PROSE and value.isdigit() and len(value) >= (4 if form is Form.QUOTED else 6)
    if has_special:
        return len(value) >= 6 and value.isascii()
    if form is Form.PROSE or not value.isascii():
        return False
    return (
        _COMMON.fullmatch(value.lower()) is not None
        or looks_random(value)
        or (value.isalpha() and value.islower() and len(value) >= 16)
    )


def is_drawn(name: str, kind: SecretKind, value: str) -> bool:
    """Whether a value near its name, not directly after it, is a secret: it must look randomly generated."""
    if not is_secret(name, kind, value, Form.QUOTED) or is_filler(value):
        return False
    if is_uuid(value):
        return True
    if is_identifier(value) and "." in value:
        return False
    if kind is SecretKind.KEY and " " in name and _HEX.fullmatch(value):
        return False  # "the shard key is 9f86d081…": any word can precede `key` in prose
    return len(value) >= 12 and is_random(value)


def is_random(value: str) -> bool:
    """Whether a value looks randomly generated, in its longest part or, if its parts are short, as a whole."""
    return (looks_random(value) or _is_random_joined(value)) and not _has_words(value)


def _is_random_joined(value: str) -> bool:
    compact = _JOINTS.sub("", value)
    is_dense = len(compact) >= 18 and 5 * class_switches(compact) >= len(compact) and compact.isalnum()
    return is_dense and 7 * (len(value) - len(compact)) <= len(value) and looks_random(compact)


def _has_words(value: str) -> bool:
    """Whether words make up half of the value: `node-modules-9f8a7b6c`, `users/2024/avatar_9f8a.png`."""
    words = sum(len(part) for part in _LETTERS.findall(value) if is_wordy(part))
    return 2 * words > len(value)
