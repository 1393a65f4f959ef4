"""Find secrets in a text and replace them.

Combines the searches of `prefixes.py`, `assignments.py` and `sentences.py` with the one defined here, for contexts that
mark a secret whatever its format: URLs, signatures, authorization headers, cookies, private key blocks and commands.
"""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

from perdure.redaction.assignments import named_values
from perdure.redaction.entropy import MARK, class_switches, is_identifier, is_stand_in, is_uuid, is_wordy, looks_random
from perdure.redaction.prefixes import prefixed_keys
from perdure.redaction.scan import ScanText, Secret, may_begin
from perdure.redaction.sentences import sentence_secrets

_URL_LOGIN = re.compile(
    r"://(?P<user>[^\s/:@\"'<>`\\()\[\]?#]{0,80}):(?P<password>[^\s/\"'<>`\\()?]{1,200})@(?=[\w\[.$\-{*<%])"
)
_URL_TOKEN = re.compile(r"://(?P<token>[A-Za-z0-9_%.~-]{20,200})@(?!(?:[\w-]+\.)*sentry\.io|o\d+\.ingest)(?=[\w\[.])")
# A webhook's address is its secret. The host and its first path segments stay readable.
_WEBHOOK = re.compile(
    r"""://(?:
        hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/
      | (?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\d+/
      | [\w.-]*webhook\.office\.com/webhookb?2?/ | outlook\.office(?:365)?\.com/webhook/
      | [\w-]+\.tines\.com/webhook/
      | hooks\.zapier\.com/hooks/catch/(?:\d+/(?=[a-z0-9]{6}))?
      | open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/(?:v2/)?hook/
      | qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=
      | oapi\.dingtalk\.com/robot/send\?access_token= | api\.telegram\.org/(?:file/)?bot
      | chat\.googleapis\.com/v1/spaces/[\w-]+/messages\?
      | maker\.ifttt\.com/(?:trigger|use)/(?:[\w-]+/(?:json/)?with/key/)? | hook\.[\w.]*(?:make|integromat)\.com/
      )(?P<secret>[A-Za-z0-9_/:@.=&%+-]{6,400})""",
    re.VERBOSE,
)
# Slack's address is pasted without its scheme as well.
_BARE_WEBHOOK = re.compile(
    r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9_/+-]{16,400})"
)
# An app's access token: the id of the app, a bar, and the secret.
_APP_TOKEN = re.compile(r"(?:\||%7c)(?P<secret>[A-Za-z0-9_-]{27})(?![A-Za-z0-9_-])", re.IGNORECASE)
_APP_ID = re.compile(r"(?<!\d)\d{13,17}\Z")
_SIGNATURE = re.compile(r"sig(?:nature)?=(?P<value>[A-Za-z0-9%+/_-]{24,600}={0,2})", re.IGNORECASE)
_HEADER = re.compile(
    r"authorization(?:\\{0,3}[\"'`])?\]?\s{0,4}(?:=>|[:=]|,(?=\s?\\{0,3}[\"'`]\w+\s))\s{0,4}(?:\\{0,3}[\"'`])?"
    r"(?P<scheme>[A-Za-z][A-Za-z0-9-]{1,20}\s+)?(?P<value>[A-Za-z0-9._~+/=:%|-]{6,8000})",
    re.IGNORECASE,
)
_BEARER = re.compile(r"bearer(?:\s{1,4}|%20|\+)(?:\\{0,3}[\"'])?(?P<value>[A-Za-z0-9._~+/=:|-]{8,8000})", re.IGNORECASE)
_BASIC = re.compile(r"basic(?:\s{1,4}|%20)(?P<value>[A-Za-z0-9+/_-]{8,2000}={0,2})", re.IGNORECASE)
_COOKIES = re.compile(
    r"cookies?(?:\\{0,3}[\"'`])?(?:\s{0,4}(?:=>|[:=])\s{0,4}|\s+(?=[\"']))(?:\\{0,3}[\"'`])?(?P<pairs>[^\r\n\"'`\\]{8,8000})",
    re.IGNORECASE,
)
_PAIR = re.compile(r"(?<![\w.$!#%&*+^|~-])(?P<name>[\w.$!#%&*+^|~-]{1,80})=(?P<value>[^;,\s]{8,})")
_SESSION = re.compile(
    r"sess|sid\b|auth|token|csrf|xsrf|jwt|login|remember|secure|clearance|cf_bm|identity|ticket", re.IGNORECASE
)
_OPENING = re.compile(r"-----BEGIN (?P<kind>[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?)-----")
_LONGEST_BLOCK = 40_000
_BREAKS = r"(?:\s|\\+[nrt]|[\"'+,>|`]|\d{1,6}[→:|\t])*+"
_CUT_BODY = re.compile(rf"(?:{_BREAKS}[A-Za-z0-9+/=]{{20,}}+)+")
_ENDS = re.compile(r"(?:\s|\\+[nrt]|[\"'`+,])+")
_LINE = re.compile(r"[A-Za-z0-9+/=_-]{16,}")
_COMMANDS = (
    (
        b"curl ",
        re.compile(
            r"curl(?=\s)[^\n]{0,400}?\s(?:-u|--user)[ =]?\\{0,3}[\"']?[^\s:\"'\\$]{1,80}"
            r":(?P<password>[^\s\"'\\]{1,200})",
            re.IGNORECASE,
        ),
    ),
    (
        b"mysql",
        re.compile(r"mysql\w* [^\n]{0,200}?-p\\{0,3}[\"']?(?P<password>[^\s\"'\\-][^\s\"'\\]{2,100})", re.IGNORECASE),
    ),
    (
        b"identified by",
        re.compile(
            r"identified by (?:password )?\\{0,3}[\"'](?P<password>(?=[a-z]*[^a-z\s\"'\\])[^\s\"'\\]{3,100})",
            re.IGNORECASE,
        ),
    ),
)
_AZURE = re.compile(r"[A-Za-z0-9_~.-]{3}\dQ~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~.-])")


def contextual_secrets(scan: ScanText) -> Iterator[Secret]:
    """Yield secrets recognised by their context, such as a URL, an authorization header or a private key block."""
    # Most texts have none of these contexts, so each search first looks for its literal bytes.
    yield from _in_urls(scan)
    yield from _signatures(scan)
    yield from _in_headers(scan)
    yield from _in_cookies(scan)
    if b"-----BEGIN " in scan.raw:
        yield from _key_blocks(scan)
    yield from _in_commands(scan)
    if b"~" in scan.raw:
        yield from _azure_secrets(scan)
    yield from _app_tokens(scan)


def _in_urls(scan: ScanText) -> Iterator[Secret]:
    for match in chain(scan.matches(b"://", _WEBHOOK), scan.matches(b"hooks.slack", _BARE_WEBHOOK)):
        if not is_stand_in(match["secret"]) and _is_webhook_secret(match["secret"]):
            yield Secret("webhook", *match.span("secret"))
    for match in scan.matches(b"://", _URL_LOGIN):
        if not _is_url_stand_in(match["password"]):
            yield Secret("url-password", *match.span("password"))
    for match in scan.matches(b"://", _URL_TOKEN):
        if looks_random(match["token"]):
            yield Secret("url-token", *match.span("token"))


def _is_webhook_secret(path: str) -> bool:
    """Whether the path of a webhook URL holds a secret; a short one if letters and digits alternate in it."""
    if len(path) >= 16 and (looks_random(path) or is_uuid(path)):
        return True
    return path.isalnum() and class_switches(path) >= 2 and not is_wordy(path)


def _app_tokens(scan: ScanText) -> Iterator[Secret]:
    for match in chain(scan.matches(b"|", _APP_TOKEN), scan.matches(b"%7c", _APP_TOKEN)):
        at = match.start()
        if _APP_ID.search(scan.text, max(0, at - 18), at) and looks_random(match["secret"]):
            yield Secret("app-token", *match.span("secret"))


def _signatures(scan: ScanText) -> Iterator[Secret]:
    text = scan.text
    for signed in scan.matches(b"sig", _SIGNATURE):
        if text[max(0, signed.start() - 6) : signed.start()].lower().endswith(("?", "&", ";", "x-amz-", "-goog-")):
            yield Secret("signature", *signed.span("value"))


def _is_url_stand_in(password: str) -> bool:
    # `user:password@localhost` names the fields of a login.
    if password.lower() in ("password", "passwd", "pass", "pwd"):
        return True
    return is_stand_in(password) or (password.isupper() and is_wordy(password)) or password.startswith(("{", "%"))


def _in_headers(scan: ScanText) -> Iterator[Secret]:
    for match in scan.matches(b"auth", _HEADER):
        if _is_credential(match["scheme"], match["value"]):
            yield Secret("authorization", *match.span("value"))
    for match in scan.matches(b"bearer", _BEARER):
        if not is_stand_in(match["value"]) and looks_random(match["value"]):
            yield Secret("bearer", *match.span("value"))
    for match in scan.matches(b"basic", _BASIC):
        if _is_login(match["value"]):
            yield Secret("basic-auth", *match.span("value"))


def _is_credential(scheme: str | None, value: str) -> bool:
    """Whether the value of an Authorization header is a secret; some schemes send none, `basic` has its own search."""
    if (
        is_stand_in(value)
        or "://" in value
        or (scheme or "").strip().lower() in ("basic", "digest", "aws4-hmac-sha256")
    ):
        return False
    if scheme is None or (is_identifier(value) and "." in value):
        return looks_random(value)
    return len(value) >= 8 and any(c.isdigit() for c in value) and any(c.isalpha() for c in value)


def _is_login(value: str) -> bool:
    try:
        login = b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if "-" in value or "_" in value else None)
        user, colon, password = login.decode("utf-8").partition(":")
    except ValueError:
        return False
    return bool(colon and password) and (user + password).isprintable() and not is_stand_in(password)


def _in_cookies(scan: ScanText) -> Iterator[Secret]:
    for match in scan.matches(b"cookie", _COOKIES):
        for pair in _PAIR.finditer(scan.text, *match.span("pairs")):
            value = pair["value"]
            if is_stand_in(value) or not any(c.isdigit() for c in value):
                continue
            if looks_random(value) and (len(value) >= 20 or _SESSION.search(pair["name"])):
                yield Secret("cookie", *pair.span("value"))


def _key_blocks(scan: ScanText) -> Iterator[Secret]:
    text = scan.text
    for opening in scan.matches(b"-----begin", _OPENING):
        start = opening.end()
        other = text.find("-----BEGIN", start, start + _LONGEST_BLOCK)
        end = text.find("-----END", start, other if other >= 0 else start + _LONGEST_BLOCK)
        if end < 0:
            cut = _CUT_BODY.match(text, start)
            end = cut.end() if cut else start
        start, end = _inner(text, start, end)
        if start < end and _is_key_body(text[start:end]):
            yield Secret("private-key", start, end)


def _inner(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span of a key block's body without the line breaks around it, so that the block keeps its lines."""
    lead = _ENDS.match(text, start, end)
    start = lead.end() if lead else start
    tail = max(start, end - 12)
    for trail in _ENDS.finditer(text, tail, end):
        if trail.end() == end:
            end = trail.start()
    return start, end


def _is_key_body(body: str) -> bool:
    longest = max((len(m[0]) for m in _LINE.finditer(body) if looks_random(m[0])), default=0)
    if longest:
        return longest >= 40 or not ("..." in body or "…" in body)
    return bool(re.fullmatch(r"(?:[A-Za-z0-9+/=]|\s|\\n)+", body)) and len(body) >= 6 and any(c.isdigit() for c in body)


def _in_commands(scan: ScanText) -> Iterator[Secret]:
    for word, pattern in _COMMANDS:
        for match in scan.matches(word, pattern):
            if not _is_url_stand_in(match["password"]):
                yield Secret("command-password", *match.span("password"))


def _azure_secrets(scan: ScanText) -> Iterator[Secret]:
    # A single character is found in a tenth of the time that two take, `Q~` here.
    for match in scan.matches(b"~", _AZURE, back=5):
        if may_begin(scan.text, match.start()):
            yield Secret("azure-client-secret", *match.span())


# Separates texts that are searched together: no name, value or key spans it.
_APART = "\n\n\0\n\n"


def find_secrets(text: str) -> list[Secret]:
    """Return every secret in the text, in order and without overlaps; never raises."""
    scan = ScanText(text)
    secrets = [*prefixed_keys(scan), *named_values(scan), *contextual_secrets(scan)]
    # The other searches know the kind and the exact start of a secret, so they take precedence.
    ends = sorted((s.end, s.start) for s in secrets)
    secrets += [s for s in sentence_secrets(scan) if not _overlaps(ends, s)]
    secrets.sort(key=lambda s: (s.start, -s.end, not s.visible_prefix))
    apart: list[Secret] = []
    for secret in secrets:
        if _is_redacted(text, secret):
            continue
        if apart and secret.start < apart[-1].end:
            last = apart[-1]
            if secret.end > last.end:
                apart[-1] = Secret(last.kind, last.start, secret.end, last.visible_prefix)
            elif (
                secret.start == last.start
                and secret.end == last.end
                and secret.visible_prefix
                and not last.visible_prefix
            ):
                apart[-1] = secret
            continue
        apart.append(secret)
    return apart


def _overlaps(spans: list[tuple[int, int]], secret: Secret) -> bool:
    """Whether a secret overlaps one of the spans, which are sorted (end, start) pairs without overlaps."""
    at = bisect_right(spans, (secret.start, len(spans) and spans[-1][0]))
    return at < len(spans) and spans[at][1] < secret.end


def redact(text: str) -> str:
    """Return the text with every secret replaced by its recognisable start and [REDACTED]; idempotent."""
    # Replacing one secret can expose another next to it, so search again until there is none. Every round removes at
    # least one character that no later round restores, so this ends, mostly after the first search.
    while secrets := find_secrets(text):
        pieces, at = [], 0
        for secret in secrets:
            pieces += [text[at : secret.start], f"{secret.visible_prefix}…{MARK}" if secret.visible_prefix else MARK]
            at = secret.end
        text = "".join(pieces) + text[at:]
    return text


def redact_part(text: str, start: int, end: int) -> str:
    """Return text[start:end] redacted; a secret that begins or ends outside is recognised by its whole length."""
    pieces, at = [], start
    for secret in find_secrets(text):
        if secret.end <= start or secret.start >= end:
            continue
        has_prefix = secret.visible_prefix and secret.start >= start
        pieces += [text[at : max(at, secret.start)], f"{secret.visible_prefix}…{MARK}" if has_prefix else MARK]
        at = min(end, secret.end)
    return redact("".join(pieces) + text[at:end])


def are_clean(texts: Iterable[str]) -> bool:
    """Whether none of the texts holds a secret; one search over many short texts is several times faster than many.

    May return False for texts that look like a secret only when joined.
    """
    return not find_secrets(_APART.join(texts))


def _is_redacted(text: str, secret: Secret) -> bool:
    """Whether a secret is already redacted; a key block that is only half redacted is not."""
    if secret.kind == "private-key":
        return text[secret.start : secret.end] == MARK
    return MARK in text[secret.start : secret.end] or text.startswith((MARK, f"…{MARK}"), secret.end)
