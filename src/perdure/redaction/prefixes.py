"""Secrets recognised by their own format: vendor prefixes, lengths and alphabets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from perdure.redaction.entropy import class_switches, is_filler, is_uuid, is_wordy, looks_random
from perdure.redaction.scan import ScanText, Secret, alternation, may_begin


class Format(NamedTuple):
    """The format of one service's keys: literal prefixes, and a regular expression for the rest."""

    kind: str
    heads: str
    body: str
    plain: bool = False


_END = r"(?![A-Za-z0-9])"


def _hex(count: int) -> str:
    return rf"[0-9a-fA-F]{{{count}}}{_END}"


def _word(low: int, high: int | None = None) -> str:
    return rf"[A-Za-z0-9]{{{low},{high or ''}}}" + (_END if high else "")


def _dash(low: int, high: int | None = None) -> str:
    return rf"[A-Za-z0-9_-]{{{low},{high or ''}}}" + (_END if high else "")


_UUID = rf"[0-9a-fA-F]{{8}}-(?:[0-9a-fA-F]{{4}}-){{3}}[0-9a-fA-F]{{12}}{_END}"
_JWT = r"[A-Za-z0-9_-]{10,}={0,2}\.[A-Za-z0-9_-]{8,}={0,2}(?:\.[A-Za-z0-9_-]*={0,2}){1,3}"

# The longest head that fits decides; order is only for the reader.
FORMATS: tuple[Format, ...] = (
    # Models and inference
    Format("anthropic", "sk-ant-", _dash(16)),
    Format("openai-project", "sk-proj-", _dash(20)),
    Format("openai-service", "sk-svcacct-", _dash(20)),
    Format("openai-admin", "sk-admin-", _dash(20)),
    Format("openrouter", "sk-or-", r"(?:v1-)?" + _word(32)),
    Format("langfuse", "sk-lf-", _UUID),
    Format("openai", "sk-", r"[A-Za-z0-9_-]{18,}", plain=True),
    Format("groq", "gsk_", _word(32)),
    Format("xai", "xai-", _word(40)),
    Format("perplexity", "pplx-", _word(32)),
    Format("replicate", "r8_", _word(32, 44)),
    Format("huggingface", "hf_", _word(30, 40), plain=True),
    Format("huggingface-organisation", "api_org_", _word(34)),
    Format("tavily", "tvly-", r"(?:dev-|prod-)?" + _word(20)),
    Format("fireworks", "fw_", _word(20, 32), plain=True),
    Format("together", "tgp_v1_", _dash(32)),
    Format("nvidia", "nvapi-", _dash(48)),
    Format("cerebras", "csk-", _word(32)),
    Format("jina", "jina_", _dash(40)),
    Format("firecrawl", "fc-", _hex(32)),
    Format("voyage", "pa-", _dash(43, 50), plain=True),
    Format("pinecone", "pcsk_", _dash(40)),
    Format("elevenlabs", "sk_", _hex(48)),
    Format("langsmith", "lsv2_pt_ lsv2_sk_", r"[0-9a-f]{32}_[0-9a-f]{10}"),
    Format("e2b", "e2b_", _hex(40)),
    Format("wandb", "wandb_v1_", _dash(40)),
    Format("modal", "ak- as-", _word(22, 24), plain=True),
    # Where code lives
    Format("perdure", "pdr_", _dash(22)),
    Format("github-fine-grained", "github_pat_", r"[A-Za-z0-9_]{36,}"),
    Format("github", "ghp_ gho_ ghu_ ghs_ ghr_", _word(30)),
    Format(
        "gitlab",
        "glpat- gldt- glrt- glrtr- glcbt- glptt- glft- glsoat- glimt- glagent- gloas- glffct- glwt-",
        r"[A-Za-z0-9_.=-]{20,}",
    ),
    Format("gitlab-runner", "GR1348941", _dash(20)),
    Format("atlassian", "ATATT ATCTT", r"[A-Za-z0-9+/_=-]{24,}", plain=True),
    Format("bitbucket", "ATBB", _word(32, 40)),
    Format("sourcegraph", "sgp_", r"(?:[0-9a-f]{16}_|local_)?" + _hex(40)),
    Format("npm", "npm_", _word(36, 40), plain=True),
    Format("pypi", "pypi-", r"Ag[A-Za-z0-9_-]{50,}"),
    Format("rubygems", "rubygems_", _hex(48)),
    Format("crates", "cio", _word(32, 32), plain=True),
    Format("nuget", "oy2", r"[a-z0-9]{43}" + _END),
    Format("clojars", "CLOJARS_", _word(60)),
    Format("docker", "dckr_pat_ dckr_oat_", _dash(20)),
    Format("artifactory", "AKC cmVmd", _word(50)),
    Format("circleci", "CCIPAT_ CCIPRJ_", r"[A-Za-z0-9]{20,24}_[0-9a-fA-F]{40}"),
    Format("buildkite", "bkua_ bkct_ bkat_", _word(36)),
    Format("sonarqube", "sqp_ squ_ sqa_", _hex(40)),
    Format("postman", "PMAK-", r"[0-9a-f]{24}-[0-9a-f]{34}"),
    # Clouds, hosts, platforms
    Format("aws-access-key", "AKIA ASIA ABIA ACCA", r"[A-Z0-9]{16}" + _END),
    Format("aws-bedrock", "ABSK", r"[A-Za-z0-9+/]{100,}={0,2}"),
    Format("google-api", "AIza", _dash(35, 35)),
    Format("google-oauth", "ya29.", _dash(10)),
    Format("google-refresh", "1//0", _dash(30)),
    Format("google-client-secret", "GOCSPX-", _dash(24)),
    Format("alibaba", "LTAI", _word(16, 24)),
    Format("tencent", "AKID", _word(32, 34)),
    Format("digitalocean", "dop_v1_ doo_v1_ dor_v1_", _hex(64)),
    Format("heroku", "HRKU-", _dash(36)),
    Format("fly", "fm1_ fm1r_ fm1a_ fm2_ fm2r_ fm2a_ fo1_", r"[A-Za-z0-9_+/-]{40,}={0,3}"),
    Format("cloudflare-origin", "v1.0-", r"[A-Za-z0-9_.-]{120,}"),
    Format("databricks", "dapi", r"[0-9a-fA-F]{32}(?:-\d)?" + _END),
    Format("vercel", "vercel_blob_rw_ vcp_ vca_ vci_ vck_ vcr_", r"[A-Za-z0-9_]{24,}", plain=True),
    Format("netlify", "nfp_ nfc_ nfo_ nfu_ nfb_", _word(36)),
    Format("render", "rnd_", _word(28), plain=True),
    Format("supabase", "sbp_ sbp_oauth_ sb_secret_", _dash(24), plain=True),
    Format("planetscale", "pscale_tkn_ pscale_pw_ pscale_oauth_", r"[A-Za-z0-9_.=-]{32,}"),
    Format("neon", "napi_", _word(40)),
    Format("vault", "hvs. hvb. hvr.", _dash(24)),
    Format("pulumi", "pul-", _hex(40)),
    Format("doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"(?:[a-z0-9_-]{2,35}\.)?" + _word(40, 44)),
    Format("onepassword-service", "ops_eyJ", r"[A-Za-z0-9_+/-]{100,}={0,3}"),
    Format("onepassword-secret-key", "A3-", r"[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    Format("infisical", "st.", r"[0-9a-f]{24}\.[0-9a-f]{32}\.[0-9a-f]{32}"),
    Format("scaleway-or-yandex", "AQVN YCAJE YCP", _dash(30, 44), plain=True),
    Format("tailscale", "tskey-", r"(?:[a-z]{2,}-)?[A-Za-z0-9]{6,}-[A-Za-z0-9_-]{16,}"),
    Format("openshift", "sha256~", _dash(43)),
    Format("age", "AGE-SECRET-KEY-1", r"[A-Z0-9]{50,}"),
    # Money and shops
    Format("stripe", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", _word(10)),
    Format("stripe-webhook", "whsec_", r"[A-Za-z0-9+/]{24,}={0,2}"),
    Format("square", "sq0atp- sq0csp- sq0idp- sq0idb-", _dash(22)),
    Format("paypal", "access_token$production$ access_token$sandbox$", r"[a-z0-9]{16}\$[0-9a-f]{32}"),
    Format("shopify", "shpat_ shpca_ shppa_ shpss_ shptka_", _hex(32)),
    Format("flutterwave", "FLWSECK- FLWSECK_TEST-", r"[A-Za-z0-9]{12,40}(?:-X)?"),
    Format("razorpay", "rzp_live_ rzp_test_", _word(14)),
    Format("plaid", "access-sandbox- access-development- access-production-", _UUID),
    Format("easypost", "EZAK EZTK", _word(54)),
    Format("duffel", "duffel_live_ duffel_test_", r"[A-Za-z0-9_=-]{40,}"),
    Format("shippo", "shippo_live_ shippo_test_", _hex(40)),
    Format("gocardless", "live_", r"[A-Za-z0-9_=-]{40,44}" + _END, plain=True),
    # Mail, chat, phones
    Format(
        "slack",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxb- xoxe.xoxp-",
        r"[A-Za-z0-9%+/-]{10,}={0,2}",
    ),
    Format("slack-app", "xapp-", r"\d-[A-Z0-9]+-\d+-[A-Za-z0-9]{8,}"),
    Format("sendgrid", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    Format("mailgun", "key-", _hex(32)),
    Format("brevo", "xkeysib- xsmtpsib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    Format("resend", "re_", r"[A-Za-z0-9]{8,}_[A-Za-z0-9]{16,}", plain=True),
    Format("twilio", "SK", _hex(32)),
    Format("mapbox", "sk.eyJ", r"[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{16,}"),
    Format("discord-bot", "MD MT Mj Mz ND NT Nj Nz OD OT", r"[A-Za-z0-9]{22,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    Format("telegram", "AA", r"(?<=\d{8}:AA)" + _dash(33, 33)),
    Format("discord-mfa", "mfa.", _dash(80)),
    Format("facebook", "EAA", _word(40), plain=True),
    Format("instagram", "IGQV IGQW", _dash(80)),
    Format("twitter-bearer", "AAAAAAAAAAAAAAAAAAAAA", r"[A-Za-z0-9%]{50,}"),
    # Tools of a working day
    Format("linear", "lin_api_ lin_oauth_ lin_wh_", _word(32)),
    Format("notion", "ntn_ secret_", _word(40, 50), plain=True),
    Format("airtable", "pat", r"[A-Za-z0-9]{14}\." + _word(62, 66)),
    Format("figma", "figd_ figo_ figu_ figr_ figp_", _dash(36)),
    Format("contentful", "CFPAT-", _dash(40)),
    Format("typeform", "tfp_", r"[A-Za-z0-9_.=-]{44,}"),
    Format("readme", "rdme_", r"[a-z0-9]{60,}"),
    Format("frameio", "fio-u-", _dash(60)),
    Format("hubspot", "pat-na pat-eu pat-ap", r"\d-" + _UUID),
    Format("launchdarkly", "sdk- api- mob-", _UUID),
    Format("newrelic", "NRAK- NRJS- NRII- NRRA- NRIQ- NRAL- NRSP-", _word(19)),
    Format("grafana", "glc_ glsa_", r"[A-Za-z0-9_+/]{32,}={0,2}"),
    Format("sentry", "sntrys_ sntryu_", r"[A-Za-z0-9_+/=-]{40,}"),
    Format("dynatrace", "dt0", r"[A-Za-z]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
    Format("posthog", "phx_ phs_", _word(40)),
    Format("prefect", "pnu_ pnb_", _word(36), plain=True),
    Format("adafruit", "aio_", _word(28, 28)),
    Format("honeycomb", "hcaik_ hcbik_ hclik_ hcxik_ hcamk_ hcxmk_", _word(40)),
    Format("dropbox", "sl.", _dash(100)),
    Format("scalingo", "tk-us-", _dash(48)),
    Format("settlemint", "sm_aat_ sm_pat_ sm_sat_", _word(16)),
    Format("defined", "dnkey-", _dash(40)),
    Format("lark", "t-g1", _word(36, 44)),
    Format("fortytwo", "s-s4t2ud- s-s4t2af-", _hex(64)),
    Format("bannerbear", "bb_pr_ bb_ma_", _word(30)),
    Format("clickhouse", "4b1d", _word(38, 38)),
    Format("lob", "live_ test_ live_pub_ test_pub_", r"(?:[0-9a-fA-F]{35}|[0-9a-fA-F]{31})" + _END),
    Format("salesforce", "3MVG9 5AEP861 5Aep861", r"[A-Za-z0-9_.=+/]{60,}"),
    Format("telnyx", "KEY", r"(?:[0-9A-F]{32}_)?[A-Za-z0-9_-]{22,60}" + _END, plain=True),
    Format("zoho", "1000.", r"[0-9a-f]{32}\.[0-9a-f]{32}" + _END),
    Format("authress", "sc_ ext_ scauth_ authress_", r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc[_-][A-Za-z0-9_.=+/-]{30,}"),
    Format("harness", "pat. sat.", r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}" + _END),
    Format("teamwork", "tkn.v1_", r"[A-Za-z0-9_+/-]{60,}={0,2}"),
    Format("newrelic-browser", "NRBR-", r"[0-9a-fA-F]{19}" + _END),
    Format("pubnub", "pub-c- sub-c- sec-c-", r"[A-Za-z0-9]{8}-(?:[A-Za-z0-9]{4}-){3}[A-Za-z0-9]{12}" + _END),
    Format("gitlab-session", "_gitlab_session=", _word(32, 32)),
    Format("trufflehog", "thog-key- thog-secret-", _hex(16) + "|" + _hex(32)),
    Format("ecostruxure", "AK1", r"[A-Za-z0-9/]{45,80}" + _END),
    Format("gemini-exchange", "master- account-", r"[A-Za-z0-9]{20}" + _END, plain=True),
    Format("ramp", "ramp_id_ ramp_sec_", _word(40)),
    Format("saladcloud", "salad_cloud_", r"[A-Za-z0-9_]{14,}", plain=True),
    Format("square-access", "EAAA", r"[A-Za-z0-9_+=-]{22,64}" + _END, plain=True),
    Format("close", "api_", r"[A-Za-z0-9]{16,24}\.[A-Za-z0-9]{16,24}" + _END),
    Format("grafana-key", "eyJrIjoi", r"[A-Za-z0-9+/_-]{60,}={0,3}"),
    Format("fullstory", "na1. eu1.", r"[A-Za-z0-9+/]{60,}={0,2}"),
    Format("klaviyo", "pk_", r"[0-9a-f]{34}" + _END),
    Format("mem0", "m0-", _word(36, 48), plain=True),
    Format("lark-app", "cli_", _word(16, 16), plain=True),
    Format("smooch", "act_", _word(24, 24), plain=True),
    Format("stripe-client-secret", "pi_ seti_", r"[A-Za-z0-9]{16,}_secret_[A-Za-z0-9]{16,}"),
    Format("aws-legacy", "A3T", r"(?=[A-Z]*[0-9])[A-Z0-9]{17}" + _END),
    Format("column", "live_ test_", _word(27, 27), plain=True),
    # Any issuer
    Format(
        "encoded-private-key",
        "LS0tLS1CRUdJTiBQUklWQVRF LS0tLS1CRUdJTiBSU0EgUFJJVkFURS LS0tLS1CRUdJTiBFQyBQUklWQVRF"
        " LS0tLS1CRUdJTiBPUEVOU1NIIFBSSVZBVEUg LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFURS",
        r"[A-Za-z0-9+/]{40,}={0,2}",
    ),
    Format("jwt", "eyJ ewo", _JWT),
)


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
env dpl pnpm maven gradle cargo target bundle chunk chunks asset assets index main vendor vendors app page pages
layout route static style styles css js lib libs module polyfills runtime framework webpack vite image images img
photo video audio media file files doc docs document folder dir path tmp temp backup snapshot dump log logs trace
traces span request req response resp res reply msg message messages chat chatcmpl cmpl completion conversation conv
thread assistant asst gen generation toolu tool toolcall call fc rs ws ig mcp ctc batch vs vsf ftjob user users usr
member customer cus cust account acct org organization orgs team teams project proj prj tenant client group role
policy invite session sess event evt webhook hook order ord invoice inv in payment pay pi pm price prod product sub
subscription plan coupon charge ch refund payout po card tok transfer tr txn tx transaction bal setup seti seto src cs
ba link item items row record rec entry nodes edge vertex pod container docker k8s kube deployment replica replicaset
stack stackset cluster service instance vm host server disk vol volume vpc subnet sg eni ami snap rtb igw nat acl eip
eipalloc lb alb elb nlb arn pvc pv ns namespace queue topic stream shard partition segment table database db schema
view query execution exec operation op trigger alarm alert incident issue ticket comment post channel device dev
sensor model models ckpt checkpoint weights dataset data sample experiment exp trial eval epoch layer block tensor
embed embedding vec uuid guid id ids nonce state cursor version ver release rc slot bucket part upload uploads
download downloads artifact report result results screenshot test tests spec unit integration e2e pytest fixture mock
case suite component class field input form button icon font glyph el elem element section header footer nav modal tab
panel menu wrapper box grid col flex text label title svg address addr wallet txid utxo contract ipfs cid did urn oid
lnbc bc1 xpub ypub zpub npub nevent note public pub publishable pk pubkey site recaptcha verification verify domain
dkim spf ssh rsa ed25519 ecdsa linux darwin windows win32 macos x86 amd64 arm arm64 aarch64 gnu musl lock lockfile
manifest boundary formboundary mime cert certificate ca crt csr x509 thumbprint serial mac imei
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
_BASE64_REST = re.compile(r"(?:[+/]{1,3}[A-Za-z0-9_-]{1,200}){1,40}={0,2}")
_BASE64_JOINT = re.compile(r"[+/=]+")
# Three letters alone begin the ids of many services' objects (`dpl_…`, `env_…`).
_ABBREVIATION = re.compile(r"[a-z]{4,7}[0-9]{0,2}|[A-Z]{4,7}[0-9]{0,2}|[a-z]{2}[0-9][a-z]{0,3}")
_DOTTED = re.compile(r"[A-Za-z0-9_-]{1,600}(?:\.[A-Za-z0-9_-]{1,2000}){1,5}")
# A body this long is longer than identifiers are; a credential's own word in the prefix makes a shorter one enough.
_LONGER_THAN_IDS, _MARKED, _SHORT = 30, 16, 14
_PUBLISHED = frozenset(("live", "test", "prod", "sandbox"))
# How long digests are in base64 without padding: one may begin like a prefix by chance.
_DIGEST_LENGTHS = frozenset((22, 27, 43, 86))
_LONGEST = 400
_NOT_BEFORE = frozenset("/.@#~+%$\\&")


def issued_key(text: str, start: int, end: int) -> Secret | None:
    """Return the key that a run of letters, digits, `_` and `-` is or begins with; None for anything else."""
    if end - start > _LONGEST or text[start - 1 : start] in _NOT_BEFORE:
        return None
    if _START.match(text, start) is None:
        return None
    end = _end_of_base64(text, end)
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


def _end_of_base64(text: str, end: int) -> int:
    """Return the end of the base64 text around a run; `end` if a path or file name follows instead."""
    if text[end : end + 1] not in ("+", "/"):
        return end
    rest = _BASE64_REST.match(text, end)
    if rest is None or _FILE_OR_PATH.match(text, rest.end()):
        return end
    pieces = _BASE64_JOINT.split(rest[0])
    if any(len(piece) > 3 and is_wordy(piece) for piece in pieces) or not looks_random(max(pieces, key=len)):
        return end
    return rest.end()


def _is_key(prefix: list[str], body: list[str], token: str) -> bool:
    words = [word.lower() for word in prefix]
    is_strong = not _STRONG.isdisjoint(words)
    drawn, longest = "".join(body), max(body, key=len)
    is_marked = is_strong or (not _WEAK.isdisjoint(words) and (len(words) > 1 or len(longest) >= 24))
    objects = _OBJECTS.intersection(words if len(words) == 1 else set(words) - _WEAK)
    # Some issuers begin their secret keys with `pk_`; publishable ones name where they apply (`pk_live_`, `pk_test_`).
    is_private = words[0] == "pk" and _PUBLISHED.isdisjoint(words) and len(drawn) >= 28
    if objects and not is_strong and not is_private:
        return False
    is_issuer = is_private or _ISSUER.fullmatch(prefix[0]) or (len(body) == 1 and _CODE.fullmatch(prefix[0]))
    if not is_marked and (len(words) > 2 or not is_issuer or (len(token) in _DIGEST_LENGTHS and not is_private)):
        return False
    is_coded = _is_coded(prefix[0])
    if is_coded and len(body) <= 4 and len(drawn) >= 18 and not any(len(p) > 3 and is_wordy(p) for p in body):
        longest = drawn  # in several pieces, because its alphabet includes the separators
    if len(longest) < min(12, len(drawn)) or 4 * len(longest) < len(drawn) or not looks_random(longest):
        return (is_strong or (is_marked and len(words) == 2 and _is_coded(prefix[0]))) and is_uuid("-".join(body))
    words_within = (
        []
        if longest is drawn
        else [part for part in body[: body.index(longest)] if len(part) > 2 and part.isalpha() and is_wordy(part)]
    )
    if words_within and not is_strong:
        return False
    if _HEX.fullmatch(drawn):
        shortest = 28 if not is_strong or len(words) == 1 else 16 if is_coded else 20
        return len(drawn) >= shortest and (is_strong or "_" in token)
    has_both_cases = any(c.isupper() for c in drawn) and any(c.islower() for c in drawn)
    judged = longest if is_strong and len(longest) >= _LONGER_THAN_IDS else drawn
    is_dense = class_switches(judged) >= len(judged) / (3.5 if has_both_cases else 6)
    if is_coded and len(words) == 1:
        return is_dense and len(drawn) >= (18 if has_both_cases else 24)
    if is_coded and is_strong:
        return is_dense and len(drawn) >= _SHORT
    return is_dense and len(drawn) >= (_LONGER_THAN_IDS if not is_marked else _MARKED if "_" in token else 20)


def _is_coded(word: str) -> bool:
    """Whether a prefix is an issuer's abbreviation rather than a word: `glpat`, `pplx`; not `cache`, `sensor`."""
    return _ABBREVIATION.fullmatch(word) is not None and not is_wordy(word)


def dotted_token(text: str, start: int, end: int) -> Secret | None:
    """Return the token of random parts joined by dots, such as a JWT, if it extends beyond `end`; else None."""
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


# Characters inside a key that end a run; its head may precede them: `dp.audit.…`, `access_token$sandbox$…`, `glc_a+…`.
_JOINTS = frozenset(b".$~+/=%")
_JOINED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.$~+/=%"
_LOOK_BACK, _LONGEST_HEAD = 200, 24
_BEFORE_LETTERS = frozenset(b"\\.$~")
_PLUS, _DOT = ord("+"), ord(".")
_SIGNS = frozenset(b".+~!:/")
_SIGNED_PREFIX = re.compile(
    r"(?<![A-Za-z0-9_.@/:+~$&-])(?:[A-Za-z][A-Za-z0-9]{1,13}[_-]){0,2}[A-Za-z]{3,8}\d{0,2}[.+~!:]$"
)
_DOTTED_PREFIX = re.compile(r"(?<![A-Za-z0-9_.@/-])(?:(?:[a-z]{2,3}\.(?:[a-z]{1,2}\.)?)|(?:[A-Z]{2,3}\.){1,2})$")
_LONG_AFTER_DOT = 20
# Before a key without an issuer: a version, an organisation's id.
_VERSION_OR_ID = re.compile(r"(?<![A-Za-z0-9_./-])(?:v\d/|[A-Za-z0-9]{12,18}!)$")
_HEX_PARTS = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}")
_DOTS = re.compile(r"\.")
_SPLITS = {ord(sign): _JOINED[:64] + sign.encode() for sign in ".+"}
_SHORTEST_KEY = 18
# No key is longer than this, its first characters show its kind, and this much refused is skipped as a whole.
_LONGEST_KEY, _JUDGED, _LONG = 32_768, 200, 64
# A marker may occur in the short rest of a key after its last run.
_MARK_BEHIND = 14
# Past this, a run within encoded data is looked at only where it begins.
_ENCODED = 4096
# Keys with a marker in the middle or at the end.
_UNHEADED = re.compile(
    r"(?P<mailchimp>(?<![0-9a-f])[0-9a-f]{32}-us\d{1,2}(?![A-Za-z0-9_]))"
    r"|(?P<dropbox>(?<=[A-Za-z0-9]{10}[B-Za-z0-9])A{10}[A-Za-z0-9_=-]{43})"
    r"|(?P<maxmind>[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk(?![A-Za-z0-9]))"
    r"|(?P<newrelic_license>[0-9a-z]{32}FFFFNRAL(?![A-Za-z0-9]))"
    r"|(?P<newrelic_mobile>AA[0-9a-f]{40}-NRMA(?![A-Za-z0-9]))"
    r"|(?P<azure_registry>(?<=[A-Za-z0-9+/]{42})\+ACR[A-Za-z0-9]{6}(?![A-Za-z0-9]))"
    r"|(?P<azure_storage>(?<=[A-Za-z0-9+/]{76})\+ASt[A-Za-z0-9+/]{6}==)"
    r"|(?P<terraform>(?<=[A-Za-z0-9]{14})\.atlasv1\.[A-Za-z0-9_=-]{60,})"
)
_MARKS = re.compile(r"[-A_N+.](?:(?<=-)us|(?<=A)A{9}|(?<=_)mmk|(?<=N)R(?:AL|MA)|(?<=\+)A(?:CR|St)|(?<=\.)atlasv1\.)")
_BEFORE_MARK = {"terraform": 14, "dropbox": 11, "azure_registry": 42, "azure_storage": 76}
_VARIANT = re.compile(r"[A-Za-z0-9_+/=~-](?:[A-Za-z0-9_+/=~-]|\.(?=[A-Za-z0-9_-]))*")
_BASE64_SIGNS = re.compile(r"[+/=]")
_VARIANT_JOINTS = re.compile(r"[_+/=~.-]")


@cache
def _rows() -> dict[str, list[tuple[str, Format]]]:
    """Return the formats to try by head, the longest head first (`sk-or-`, then `sk-`)."""
    heads = sorted(((head, row) for row in FORMATS for head in row.heads.split()), key=lambda pair: -len(pair[0]))
    return {long: [(head, row) for head, row in heads if long.startswith(head)] for long, _ in heads}


@cache
def _body(pattern: str) -> re.Pattern[str]:
    """Compile the pattern of a key's body when its prefix is first met: most never are."""
    return re.compile(pattern)


@cache
def _heads() -> re.Pattern[str]:
    return re.compile(alternation(set(_rows())))


@cache
def _prefilter() -> re.Pattern[str]:
    """Pre-filter for a run: a digit somewhere in it (an empty match) or a known head.

    Most runs are names with neither.
    """
    return re.compile(rf"(?=[A-Za-z_-]*+[0-9])|{_heads().pattern}")


def prefixed_keys(scan: ScanText) -> Iterator[Secret]:
    """Yield every key whose prefix is in the table, except chance matches inside encoded data."""
    telling, text, raw, done = _prefilter().match, scan.text, scan.raw, 0
    for start, end in scan.runs:
        if end - start < _SHORTEST_KEY:
            continue
        between = raw[start - 1] if start else 0
        tells = telling(text, start)
        if tells is None and between not in _BEFORE_LETTERS:
            continue  # a name with neither a digit nor a head, most likely
        if scan.is_inside_blob(start):
            continue
        at = start
        if between in _JOINTS:
            before = raw[max(done, start - _LOOK_BACK) : start]
            at = start - len(before) + len(before.rstrip(_JOINED))
        if end - start > _ENCODED and scan.is_inside_blob(start + 1):
            end = start + _LONG
        at = max(at, done)
        for key in _keys_within(text, at, end):
            yield key
            at = max(at, key.end)
        if tells is not None and not tells[0] and at <= start:
            issued = _find_issued_key(raw, text, start, end, done)
            if issued is not None:
                yield issued
                at = issued.end
        # The end of a run that is not a key may be the head of one that continues after a sign: `_gitlab_session=…`.
        done = max(at, end - _LONGEST_HEAD)


def _find_issued_key(raw: bytes, text: str, start: int, end: int, done: int) -> Secret | None:
    """Return a key of an unlisted issuer, whose first part may precede a dot or a plus sign; None if there is none."""
    between, first = raw[start - 1] if start else 0, start
    if between in _SPLITS:
        before = raw[max(done, start - _LOOK_BACK) : start]
        first = start - len(before) + len(before.rstrip(_SPLITS[between]))
    if (first < start or raw[end : end + 1] == b".") and (dotted := dotted_token(text, first, end)) is not None:
        return dotted
    if between in _SIGNS and (signed := _signed_key(text, start, end)) is not None:
        return signed
    if _HEX_PARTS.fullmatch(text, start, end) and not _FILE_OR_PATH.match(text, end):
        return Secret("issued-key", start, end)
    if between == _DOT and (short := _dotted_prefix_key(text, start, end)) is not None:
        return short
    return issued_key(text, first if between == _PLUS else start, end)


def _signed_key(text: str, start: int, end: int) -> Secret | None:
    """Return the token after an issuer or id and a separator such as `.`, `:` or `~`, prefix included; else None."""
    if end - start < _LONG_AFTER_DOT or text.startswith("eyJ", start) or not _is_mixed(text[start:end]):
        return None
    prefix = _VERSION_OR_ID.search(text, max(0, start - 20), start)
    if prefix is None or end - start < (100 if prefix[0][-1] == "/" else 40):
        prefix = _SIGNED_PREFIX.search(text, max(0, start - 40), start)
        words = [word.lower() for word in _PARTS.findall(prefix[0])] if prefix is not None else ["id"]
        is_issuer = bool(_STRONG.intersection(words)) if len(words) > 1 else _is_coded(words[0])
        if prefix is None or not is_issuer or _OBJECTS.intersection(words) or _FILE_OR_PATH.match(text, end):
            return None
    rest = _VARIANT.match(text, start, start + _LONGEST_KEY)
    return Secret("issued-key", prefix.start(), rest.end() if rest is not None else end, prefix[0])


def _dotted_prefix_key(text: str, start: int, end: int) -> Secret | None:
    """Return a long random run after a short prefix and a dot (`sk.…`, `sl.u.…`); not a public key (`pk.eyJ…`)."""
    prefix = _DOTTED_PREFIX.search(text, max(0, start - 9), start)
    if prefix is None or end - start < _LONG_AFTER_DOT or text.startswith("eyJ", start):
        return None
    rest = _VARIANT.match(text, start, start + _LONGEST_KEY)
    if (
        rest is None
        or not (_is_mixed(text[start:end]) or _is_mixed(_DOTS.sub("", rest[0])))
        or _FILE_OR_PATH.match(text, rest.end())
    ):
        return None
    return Secret("issued-key", prefix.start(), rest.end(), prefix[0])


def _keys_within(text: str, at: int, end: int) -> Iterator[Secret]:
    most = end + _MARK_BEHIND
    if _MARKS.search(text, at, most) and (odd := _UNHEADED.search(text, at, most)) is not None:
        start = odd.start() - _BEFORE_MARK.get(str(odd.lastgroup), 0)
        if may_begin(text, start):
            yield Secret(str(odd.lastgroup).replace("_", "-"), start, odd.end())
    search = _heads().search
    while (head := search(text, at, end)) is not None:
        at = head.start() + 1
        if not may_begin(text, head.start()):
            continue
        read, key = _key_at(text, head)
        if key is not None:
            yield key
        if key is not None or read - at > _LONG:
            at = read  # rejected text is not read again: a text of prefixes alone would take quadratic time


def _key_at(text: str, head: re.Match[str]) -> tuple[int, Secret | None]:
    """Return the key at this prefix, if there is one, and how far the patterns of the table matched."""
    read = head.end()
    for prefix, row in _rows()[head[0]]:
        body = _body(row.body).match(text, head.start() + len(prefix), head.end() + _LONGEST_KEY)
        if body is None:
            continue
        read = max(read, body.end())
        if row.plain and not _is_drawn(body[0][:_JUDGED]):
            continue
        return read, None if is_filler(body[0][:_JUDGED]) else Secret(row.kind, head.start(), body.end(), prefix)
    return read, _variant_at(text, head)


def _is_drawn(body: str) -> bool:
    """Whether a key's body looks randomly generated, also in pieces if its alphabet includes separators."""
    return looks_random(body) or looks_random(_BASE64_SIGNS.sub("", body))


def _variant_at(text: str, head: re.Match[str]) -> Secret | None:
    """Return a key with a known prefix but another length or alphabet than in the table, if its body looks random."""
    if not _is_distinctive(head[0]):
        return None
    body = _VARIANT.match(text, head.end(), head.end() + _JUDGED)
    if body is None or is_filler(body[0]) or "example" in body[0].lower() or _FILE_OR_PATH.match(text, body.end()):
        return None
    drawn = _VARIANT_JOINTS.sub("", body[0])
    if (
        len(drawn) < (_MARKED if len(head[0]) > 3 else 40 if head[0][-1] == "." else _LONGER_THAN_IDS)
        or 6 * class_switches(drawn) < len(drawn)
        or not looks_random(drawn)
    ):
        return None
    rest = _VARIANT.match(text, body.end(), head.end() + _LONGEST_KEY)
    return Secret("issued-key", head.start(), rest.end() if rest is not None else body.end(), head[0])


@cache
def _is_distinctive(head: str) -> bool:
    """Whether a prefix belongs to one issuer only: it has a separator and a word that is not a common one."""
    words = [word.lower() for word in _PARTS.findall(head)]
    is_own = any(len(word) > 2 and word not in _OBJECTS and word not in _WEAK and word not in _STRONG for word in words)
    return (len(head) >= 4 and head[-1] in "_-." and is_own) or (
        len(head) == 3 and (head[-1] == "." or (head[-1] in "_-" and not head[:2].isalpha()))
    )
