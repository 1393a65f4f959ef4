"""Values in the next cell, under a header and in the same sentence as their name, and keys of unlisted issuers."""

from __future__ import annotations

import string
from base64 import b64encode
from random import Random

import pytest
from benchmarks.secret_samples import draw_key

from perdure.redaction import find_secrets, redact

NAMES = ["ACME_API_KEY", "ACME_TOKEN", "ACME_SECRET", "ACME_PAT", "ACME_CREDENTIAL", "acme_key", "acmeAccessToken"]
SENTENCES = [
    "For your information, the {words} is {value}.",
    "Here is the {words}: {value} - keep it safe.",
    "the {words} for the staging site is {value}",
    "Please use {value} as the {words} for now.",
    "{value} is our {words}, I think",
    "Our {words} `{value}` stopped working, can you look?",
    'my {words} is "{value}", thanks',
    "Our {words} was rotated on Monday; the new one is {value} and it works.",
    "I came across the {words} in an old file, it is `{value}`.",
    "We replaced the {words} yesterday. The value is now {value}, please update it.",
    "The {words}, which nobody remembers, is {value}.",
    "she mailed me the {words} this morning ({value})",
    "that was the wrong {words}, sorry, the right one: {value}",
    "change the {words} from {value} to another one",
    "**{words}** — `{value}`",
    "Here comes the {words}:\n\n```\n{value}\n```\n",
    "the {words} you wanted is below:\n{value}\nthanks",
    "# {words}\n{value}\n",
    '// {words}\nconst a = "{value}"',
    "Bob: what is the {words}?\nAnn: {value}\n",
    "{value} (our {words})",
    "{value}  # {words}",
    "try {value}, that's our {words}",
]
TABLES = [
    "| Name | Value |\n|---|---|\n| {name} | {value} |\n| REGION | eu |\n",
    "| `{name}` | `{value}` |\n",
    "| Environment | {words} |\n|---|---|\n| prod | `{value}` |\n| region | eu |\n",
    "name,value,owner\n{name},{value},ops\n",
    '"{name}","{value}","ops"\n',
    "id,{name},owner\n1,{value},ops\n2,,dev\n",
    "id;{name};owner\r\n1;{value};ops\r\n",
    "{name}\t{value}\tops\n",
    "| # | Team | {words} |\n|---|---|---|\n| 1 | platform | `{value}` |\n",
    "| Service & owner | {words} (prod) |\n|:--|:--|\n| billing: eu | **{value}** |\n",
    "Name | Value\n--- | ---\n{words} | `{value}`\n",
    "│ env  │ {words} │\n├──────┼────────┤\n│ prod │ {value} │\n",
    "| env | {words} |\n+-----+---------+\n| prod | {value} |\n",
    "ENV    {words}\nprod   {value}\n",
    "<tr><th>{words}</th><td>{value}</td></tr>",
]


def _uuid(rng: Random) -> str:
    return "-".join("".join(rng.choices("0123456789abcdef", k=n)) for n in (8, 4, 4, 4, 12))


def _words(name: str) -> str:
    return {"acmeAccessToken": "acme access token"}.get(name, name.replace("_", " ").lower().replace(" pat", " PAT"))


@pytest.mark.spec("E9")
@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_value_in_the_same_sentence_as_its_name_is_taken_out(sentence: str) -> None:
    rng = Random(sentence)
    for name in NAMES:
        value = draw_key(rng, 32)
        text = sentence.format(words=_words(name), value=value)
        assert redact(text) == text.replace(value, "[REDACTED]"), text


@pytest.mark.spec("E9")
@pytest.mark.parametrize("table", TABLES)
def test_a_value_in_the_cell_or_the_column_of_its_name_is_taken_out(table: str) -> None:
    rng = Random(table)
    for name in NAMES:
        value = draw_key(rng, 32)
        text = table.format(name=name, words=_words(name).capitalize(), value=value)
        assert redact(text) == text.replace(value, "[REDACTED]"), text


def test_every_row_of_a_column_is_read() -> None:
    rng = Random(4)
    values = [draw_key(rng, 28) for _ in range(50)]
    rows = "\n".join(f"{i},user{i}@example.com,{value},active" for i, value in enumerate(values))
    text = f"id,email,api_key,status\n{rows}\n"
    assert len(find_secrets(text)) == 50
    assert "user49@example.com,[REDACTED],active" in redact(text)


def test_a_column_of_passwords_is_taken_out_and_the_others_stay() -> None:
    text = "user,password,role\nann,hunter2,admin\nbob,Sommer1999!,user\n"
    assert redact(text) == "user,password,role\nann,[REDACTED],admin\nbob,[REDACTED],user\n"


def test_a_table_in_escaped_text_is_read_as_well() -> None:
    value = draw_key(Random(9), 32)
    text = f'{{"output": "id,api_key\\n1,{value}\\n"}}'
    assert redact(text) == text.replace(value, "[REDACTED]")


@pytest.mark.parametrize("name", ["SNYK_TOKEN", "ACME_API_TOKEN", "ADO_PAT", "ACME_CREDENTIAL", "ACME_KEY"])
def test_a_uuid_is_a_secret_under_the_name_of_an_issuer_s_token(name: str) -> None:
    value = _uuid(Random(name))
    assert redact(f"{name}={value}\n") == f"{name}=[REDACTED]\n"


@pytest.mark.parametrize("name", ["token", "lockToken", "clientToken", "request_token", "session_id", "cache_key"])
def test_a_uuid_under_another_name_is_an_id(name: str) -> None:
    text = f'{{"{name}": "{_uuid(Random(name))}"}}'
    assert redact(text) == text


@pytest.mark.spec("E9")
@pytest.mark.parametrize(
    ("prefix", "length"),
    [("acme_live_", 24), ("acme-key-", 24), ("acme_pat_", 20), ("acme-secret-", 32), ("acme_", 36), ("ACME-", 40)],
)
def test_a_key_of_an_issuer_that_no_row_names_is_known_by_its_prefix(prefix: str, length: int) -> None:
    rng = Random(prefix)
    for template in (
        "VALUE={}\n",
        '{{"v": "{}"}}',
        "use {} here",
        "| {} |",
        "a: '{}'",
        "?q={}&b=1",
        '{{\\"v\\": \\"{}\\"}}',
    ):
        text = template.format(prefix + draw_key(rng, length))
        assert redact(text) == template.format(f"{prefix}…[REDACTED]")


# A prefix, the alphabet of the body, its length: shapes that issuers use, none of them in the table.
SHAPES = {
    "an abbreviation and a short body": ("qzlpt-", "letters and digits", 20),
    "an abbreviation and small letters": ("vrtk_", "small letters and digits", 26),
    "a private key with a public prefix": ("pk_", "letters and digits", 32),
    "two letters and a dot": ("zk.", "letters and digits", 34),
    "three letters and two dots": ("zkq.t.", "letters and digits", 60),
    "an abbreviation and a body with dashes": ("glxyt-", "letters, digits and dashes", 24),
    "an abbreviation and a colon": ("qzlpt:", "letters and digits", 32),
    "an abbreviation and a plus sign": ("vrtk+", "letters and digits", 24),
    "a credential's word and a tilde": ("acme_key~", "letters and digits", 32),
    "two codes with dots": ("VF.DM.", "letters and digits", 40),
    "a listed issuer, another length": ("glpat-", "letters and digits", 17),
    "a listed issuer, another alphabet": ("sntryu_", "base64", 40),
}
ALPHABETS = {
    "letters and digits": string.ascii_letters + string.digits,
    "small letters and digits": string.ascii_lowercase + string.digits,
    "letters, digits and dashes": string.ascii_letters + string.digits * 3 + "-",
    "base64": string.ascii_letters + string.digits + "+/",
}


@pytest.mark.spec("E9")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_key_is_known_by_the_shape_of_its_prefix_and_a_random_body(shape: str) -> None:
    prefix, alphabet, length = SHAPES[shape]
    rng, missed = Random(shape), 0
    for _ in range(100):
        secret = prefix + "".join(rng.choices(ALPHABETS[alphabet], k=length))
        missed += secret[len(secret) // 2 :] in redact(f"got {secret} from upstream")
    assert missed <= 8  # a few draws look like words or numbers


def test_a_private_key_encoded_once_more_is_taken_out_and_a_certificate_is_not() -> None:
    body = "\n".join(b64encode(Random(3).randbytes(48)).decode() for _ in range(20))
    for label, is_secret in (("RSA PRIVATE KEY", True), ("PRIVATE KEY", True), ("CERTIFICATE", False)):
        encoded = b64encode(f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n".encode()).decode()
        assert (encoded[400:500] not in redact(f"  data: {encoded}\n")) is is_secret


@pytest.mark.parametrize("end", ["", ".", ".\n", "\nThanks"])
def test_a_value_before_its_name_at_the_end_of_a_sentence_is_taken_out(end: str) -> None:
    value = draw_key(Random(8), 32)
    assert redact(f"use {value} as the acme api key{end}") == f"use [REDACTED] as the acme api key{end}"


def test_a_hexadecimal_key_that_somebody_calls_their_own_is_taken_out() -> None:
    digest = "".join(Random(6).choices("0123456789abcdef", k=40))
    assert redact(f"My acme key is {digest}.") == "My acme key is [REDACTED]."
    assert redact(f"The shard key is {digest}.") == f"The shard key is {digest}."


@pytest.mark.parametrize("prefix", ["cus_", "price_", "msg_", "toolu_", "run-", "commit-", "sha256-", "c_", "s_", "t_"])
def test_identifiers_with_the_same_grammar_are_left_alone(prefix: str) -> None:
    rng = Random(prefix)
    for length in (14, 24, 26, 32, 40):
        text = f"see {prefix}{draw_key(rng, length)} there"
        assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "The api token was rotated; the commit is {hex} now.",
        "The api token expired, so the build id is {value}.",
        "We rotated the api key. The request was {value} and it failed.",
        "What is the api key for?\nAnn: see {value}\n",
        "the password of the token service\nbuild {value}\n",
        "| Cache key & owner | Created |\n|---|---|\n| {hex} | 2026-03-14 |\n",
        "see v2/docs/index and release!{hex}",
        "https://hooks.zapier.com/hooks/catch/your-account/your-hook",
    ],
)
def test_a_value_that_another_word_claims_is_left_alone(text: str) -> None:
    rng = Random(text)
    text = text.format(value=draw_key(rng, 32), hex="".join(rng.choices("0123456789abcdef", k=40)))
    assert redact(text) == text


@pytest.mark.parametrize(
    ("head", "body", "kept"),
    [
        ("v2/", 160, "v2/…[REDACTED]"),
        ("00D4w000003AbC1!", 96, "00D4w000003AbC1!…[REDACTED]"),
        (
            "https://hooks.zapier.com/hooks/catch/60059767/",
            0,
            "https://hooks.zapier.com/hooks/catch/60059767/[REDACTED]",
        ),
    ],
)
def test_a_key_after_a_version_an_organisation_or_a_hook_s_address_is_taken_out(
    head: str, body: int, kept: str
) -> None:
    key = draw_key(Random(head), body) if body else "we761ih"
    assert redact(f'got "{head}{key}" back') == f'got "{kept}" back'


@pytest.mark.parametrize("where", ["assets/{}.js", "/var/cache/{}/blob", "{}.tar.gz", "registry.example/{}:latest"])
def test_a_file_or_path_with_the_grammar_of_a_key_is_left_alone(where: str) -> None:
    text = where.format("acme_" + draw_key(Random(where), 36))
    assert redact(text) == text


@pytest.mark.parametrize("head", ["ops_eyJ", "glc_", "sntrys_", "fm2_", "ABSK"])
def test_a_key_with_plus_and_slash_in_its_body_is_taken_out_as_a_whole(head: str) -> None:
    rng = Random(head)
    for _ in range(20):
        body = b64encode(rng.randbytes(150)).decode()
        for template in ("VALUE={}\n", "value: {}\n", "x = '{}'", "| {} |", "a,{},b"):
            assert redact(template.format(head + body)) == template.format(f"{head}…[REDACTED]")


@pytest.mark.parametrize(
    "text",
    [
        "the hash of the token is {hex}",
        "the cache key is {hex}",
        "the api key id is {uuid}",
        "| token hash | {hex} |",
        "| key | {hex} |",
        "perdure gateway token revoke {short}",
        "path,sha256\ntoken.py,{hex}\n",
        '"AWS::KMS::ReplicaKey": "{short}{short}"',
    ],
)
def test_what_is_said_about_a_secret_is_not_the_secret(text: str) -> None:
    rng = Random(text)
    digest = "".join(rng.choices("0123456789abcdef", k=40))
    text = text.replace("{hex}", digest).replace("{uuid}", _uuid(rng)).replace("{short}", digest[:12])
    assert redact(text) == text
