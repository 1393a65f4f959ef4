"""Keys of issuers without a row in `formats.py`: an issuer's prefix, a separator and a body drawn at random.

Identifiers of objects have the same grammar (`price_1MoBy5…`, `pod-7d9c8b6f5d`), so a token counts as a key only if its
prefix names a credential (`acme_live_…`, `acme-key-…`), or if its body is longer than identifiers are and its prefix
names no object, build or digest.
"""

from __future__ import annotations

import re

from perdure.redaction.page import Secret
from perdure.redaction.shapes import class_switches, is_filler, is_uuid, is_wordy, looks_random

# Words in a prefix that name a credential. The weak ones begin ordinary names as well (`api-gateway-…`, `test_db_…`).
_STRONG = frozenset(
    (
        *("key", "keys", "apikey", "secret", "sec", "token", "tokens", "tkn", "accesstoken", "authtoken", "apitoken"),
        *("pat", "pats", "sk", "rk", "ak", "cred", "creds", "private", "priv", "pri", "live", "passwd", "password"),
        *("refresh", "bearer", "oat", "aat", "sat", "pak", "svcacct", "personal"),
    )
)
_WEAK = frozenset(
    ("api", "test", "prod", "production", "sandbox", "dev", "auth", "access", "oauth", "admin", "bot", "svc")
)
# Words that begin identifiers, builds, digests and file names of any length.
_OBJECT_WORDS = """
sha sha1 sha224 sha256 sha384 sha512 md5 crc crc32 blake2 blake2b blake3 h1 sri hash digest checksum etag hmac
fingerprint integrity commit rev ref refs tree blob object obj git branch tag patch diff build builds ci cd run runs
job jobs task tasks step steps stage pipeline workflow worker cache cached deps dependencies modules node npm pip yarn
pnpm maven gradle cargo target bundle chunk chunks asset assets index main vendor vendors app page pages layout route
static style styles css js lib libs module polyfills runtime framework webpack vite image images img photo video audio
media file files doc docs document folder dir path tmp temp backup snapshot dump log logs trace traces span request
req response resp res reply msg message messages chat chatcmpl cmpl completion conversation conv thread assistant asst
gen generation toolu tool toolcall call fc rs ws ig mcp ctc batch vs vsf ftjob user users usr member customer cus cust
account acct org organization orgs team teams project proj prj tenant client group role policy invite session sess
event evt webhook hook order ord invoice inv in payment pay pi pm price prod product sub subscription plan coupon
charge ch refund payout po card tok transfer tr txn tx transaction bal setup seti seto src cs ba link item items row
record rec entry nodes edge vertex pod container docker k8s kube deployment replica replicaset stack stackset cluster
service instance vm host server disk vol volume vpc subnet sg eni ami snap rtb igw nat acl eip eipalloc lb alb elb nlb
arn pvc pv ns namespace queue topic stream shard partition segment table database db schema view query execution exec
operation op trigger alarm alert incident issue ticket comment post channel device dev sensor model models ckpt
checkpoint weights dataset data sample experiment exp trial eval epoch layer block tensor embed embedding vec uuid
guid id ids nonce state cursor version ver release rc slot bucket part upload uploads download downloads artifact
report result results screenshot test tests spec unit integration e2e pytest fixture mock case suite component class
field input form button icon font glyph el elem element section header footer nav modal tab panel menu wrapper box
grid col flex text label title svg address addr wallet txid utxo contract ipfs cid did urn oid lnbc bc1 xpub ypub zpub
npub nevent note public pub publishable pk pubkey site recaptcha verification verify domain dkim spf ssh rsa ed25519
ecdsa linux darwin windows win32 macos x86 amd64 arm arm64 aarch64 gnu musl lock lockfile manifest boundary
formboundary mime cert certificate ca crt csr x509 thumbprint serial mac imei
"""
_OBJECTS = frozenset(_OBJECT_WORDS.split())
_START = re.compile(r"[A-Za-z][A-Za-z0-9]{1,13}[_-]")
_PARTS = re.compile(r"[A-Za-z0-9]+")
_WORD = re.compile(
    r"[a-z]{2,12}[0-9]{0,2}|[A-Z]{2,12}[0-9]{0,2}|[A-Z][a-z]{2,11}|[a-z][a-z0-9]{1,6}|[A-Z][A-Z0-9]{1,6}|v?\d"
)
_ISSUER = re.compile(r"[a-z]{3,12}[0-9]{0,2}|[A-Z]{3,12}[0-9]{0,2}|[A-Za-z]{2}[0-9][a-z]{2,3}")
# Less like a word, and so an issuer only before a body in one piece.
_CODE = re.compile(r"[a-z][a-z0-9]{1,5}|[A-Z][A-Z0-9]{1,5}")
_HEX = re.compile(r"[0-9a-fA-F]+")
_FILE_OR_PATH = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,4}(?![A-Za-z0-9])|[/\\@(\[:](?=\w)")
_DIGEST_LABEL = re.compile(
    r"(?:sha-?\d+|md5|h1|hash|digest|checksum|integrity|etag|fingerprint|challenge|nonce|state)[\"'`]?[=:,] ?[\"'`]?$",
    re.IGNORECASE,
)
_TAIL = re.compile(r"[A-Za-z0-9_+=~-]*")
_DOTTED = re.compile(r"[A-Za-z0-9_-]{1,600}(?:\.[A-Za-z0-9_-]{1,2000}){1,5}")
# A body this long is longer than identifiers are; a credential's own word in the prefix makes a shorter one enough.
_LONGER_THAN_IDS, _MARKED = 30, 16
# How long digests are in base64 without padding: one may begin like a prefix by chance.
_DIGEST_LENGTHS = frozenset((22, 27, 43, 86))
_LONGEST = 400
_NOT_BEFORE = frozenset("/.@#~+%$\\&")


def issued_key(text: str, start: int, end: int) -> Secret | None:
    """The key that a run of letters, digits, `_` and `-` is, or begins with; None for anything else."""
    if end - start > _LONGEST or text[start - 1 : start] in _NOT_BEFORE:
        return None
    if _START.match(text, start) is None:
        return None
    parts = list(_PARTS.finditer(text, start, end))
    leading = 0
    while (
        leading < len(parts)
        and _WORD.fullmatch(parts[leading][0])
        and text.startswith(("_", "-"), parts[leading].end())
    ):
        leading += 1
    if not 0 < leading < len(parts) or leading > 4:
        return None
    if not _is_key([part[0] for part in parts[:leading]], [part[0] for part in parts[leading:]], text[start:end]):
        return None
    body = parts[leading].start()
    if is_filler(text[body:end]) or "example" in text[body:end].lower() or _FILE_OR_PATH.match(text, end):
        return None
    if _DIGEST_LABEL.search(text, max(0, start - 24), start):
        return None
    tail = _TAIL.match(text, end)
    return Secret("issued-key", start, tail.end() if tail is not None else end, text[start:body])


def _is_key(prefix: list[str], body: list[str], token: str) -> bool:
    words = [word.lower() for word in prefix]
    is_strong = not _STRONG.isdisjoint(words)
    drawn, longest = "".join(body), max(body, key=len)
    is_marked = is_strong or (not _WEAK.isdisjoint(words) and (len(words) > 1 or len(longest) >= 24))
    objects = _OBJECTS.intersection(words if len(words) == 1 else set(words) - _WEAK)
    if objects and not is_strong:
        return False
    is_issuer = _ISSUER.fullmatch(prefix[0]) or (len(body) == 1 and _CODE.fullmatch(prefix[0]))
    if not is_marked and (len(words) > 2 or not is_issuer or len(token) in _DIGEST_LENGTHS):
        return False
    if len(longest) < min(12, len(drawn)) or 4 * len(longest) < len(drawn) or not looks_random(longest):
        return is_strong and is_uuid("-".join(body))
    words_within = [part for part in body[: body.index(longest)] if len(part) > 2 and part.isalpha() and is_wordy(part)]
    if words_within and not is_strong:
        return False
    if _HEX.fullmatch(drawn):
        return len(drawn) >= (20 if is_strong and len(words) > 1 else 28) and (is_strong or "_" in token)
    has_both_cases = any(c.isupper() for c in drawn) and any(c.islower() for c in drawn)
    is_dense = class_switches(drawn) >= len(drawn) / (3.5 if has_both_cases else 6)
    return is_dense and len(drawn) >= (_LONGER_THAN_IDS if not is_marked else _MARKED if "_" in token else 20)


def dotted_token(text: str, start: int, end: int) -> Secret | None:
    """Random parts joined by dots, two or more of them long and of mixed case: a signed or composed token."""
    dotted = _DOTTED.match(text, start)
    if dotted is None or text[start - 1 : start] in _NOT_BEFORE or dotted.end() <= end:
        return None
    drawn = [part for part in dotted[0].split(".") if len(part) >= _MARKED and _is_mixed(part)]
    if len(drawn) < 2 or sum(map(len, drawn)) < 40 or _FILE_OR_PATH.match(text, dotted.end()):
        return None
    return Secret("dotted-token", start, dotted.end())


def _is_mixed(part: str) -> bool:
    part = part[:_LONGEST]
    has_all = any(c.isupper() for c in part) and any(c.islower() for c in part) and any(c.isdigit() for c in part)
    return has_all and class_switches(part) >= len(part) / 3.5 and looks_random(part)
