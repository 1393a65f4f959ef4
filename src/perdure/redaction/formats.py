"""Keys that are recognised by how they begin: one row a format, and nothing else to change when a service adds one.

`heads` are the ways it begins, parted by spaces: what stays readable. `body` must follow. A row is `plain` when a head
is ordinary text too (`sk-` begins class names, `re_` function names), so that its body has to look random as well.
"""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """One service's key: literal heads, and the regular expression of what follows any of them."""

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
    Format("perdure", "pdr_", _dash(40)),
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
    Format("cloudflare-origin", "v1.0-", r"[A-Za-z0-9_-]{150,}"),
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
    Format(
        "tailscale",
        "tskey-api- tskey-auth- tskey-client- tskey-scim- tskey-webhook-",
        r"[A-Za-z0-9]{6,}-[A-Za-z0-9]{16,}",
    ),
    Format("openshift", "sha256~", _dash(43)),
    Format("age", "AGE-SECRET-KEY-1", r"[A-Z0-9]{50,}"),
    # Money and shops
    Format("stripe", "sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_", _word(16)),
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
    Format("slack-app", "xapp-", r"\d-[A-Z0-9]+-\d+-[A-Za-z0-9]{16,}"),
    Format("sendgrid", "SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}"),
    Format("mailgun", "key-", _hex(32)),
    Format("brevo", "xkeysib- xsmtpsib-", r"[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    Format("resend", "re_", r"[A-Za-z0-9]{8,}_[A-Za-z0-9]{16,}", plain=True),
    Format("twilio", "SK", r"[0-9a-f]{32}" + _END),
    Format("mapbox", "sk.eyJ", r"[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{16,}"),
    Format("discord-bot", "MD MT Mj Mz ND NT Nj Nz OD OT", r"[A-Za-z0-9]{22,26}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),
    Format("telegram", "AA", r"(?<=\d{8}:AA)" + _dash(33, 33)),
    Format("discord-mfa", "mfa.", _dash(80)),
    Format("facebook", "EAA", _word(90)),
    Format("instagram", "IGQV IGQW", _dash(80)),
    Format("twitter-bearer", "AAAAAAAAAAAAAAAAAAAAA", r"[A-Za-z0-9%]{50,}"),
    # Tools of a working day
    Format("linear", "lin_api_ lin_oauth_ lin_wh_", _word(32)),
    Format("notion", "ntn_ secret_", _word(40, 50), plain=True),
    Format("airtable", "pat", r"[A-Za-z0-9]{14}\." + _word(64, 64)),
    Format("figma", "figd_ figo_ figu_ figr_", _dash(36)),
    Format("contentful", "CFPAT-", _dash(40)),
    Format("typeform", "tfp_", r"[A-Za-z0-9_.=-]{44,}"),
    Format("readme", "rdme_", r"[a-z0-9]{60,}"),
    Format("frameio", "fio-u-", _dash(60)),
    Format("hubspot", "pat-na pat-eu pat-ap", r"\d-" + _UUID),
    Format("launchdarkly", "sdk- api- mob-", _UUID),
    Format("newrelic", "NRAK- NRJS- NRII- NRRA- NRIQ- NRAL- NRSP-", _word(19)),
    Format("grafana", "glc_ glsa_", r"[A-Za-z0-9_+/]{32,}={0,2}"),
    Format("sentry", "sntrys_ sntryu_", r"[A-Za-z0-9_+/=-]{40,}"),
    Format("dynatrace", "dt0", r"[a-z]\d\d\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}"),
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
    Format("salesforce", "3MVG9 5AEP861", r"[A-Za-z0-9_.=+/]{60,}"),
    Format("telnyx", "KEY", r"(?:[0-9A-F]{32}_)?[A-Za-z0-9_-]{22,60}" + _END, plain=True),
    Format("zoho", "1000.", r"[0-9a-f]{32}\.[0-9a-f]{32}" + _END),
    Format("authress", "sc_ ext_ scauth_ authress_", r"[a-z0-9]{5,30}\.[a-z0-9]{4,6}\.acc_[A-Za-z0-9_.=+/-]{30,}"),
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
    Format("square-access", "EAAA", r"[A-Za-z0-9_+=-]{56,64}" + _END, plain=True),
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
    Format("jwt", "eyJ ewo", _JWT),
)
