"""Every format and every place gives its secret up, and keeps what makes it recognisable."""

from __future__ import annotations

import json
from itertools import pairwise
from random import Random

import pytest
from benchmarks.secret_places import placed
from benchmarks.secret_samples import Sample, draw_key, keys

from perdure.redaction import find_secrets, redact
from perdure.redaction.prefixes import FORMATS

KEYS, PLACES = list(keys(1)), list(placed(1))
# What stands around a key in tool output: prose, JSON, escaped JSON, terminal colours, settings, Chinese, URLs.
AROUND = [
    ("", ""),
    ("the key is ", " and works."),
    ('{"k":"', '"}'),
    ("\\n", "\\nnext"),
    ("\x1b[31m", "\x1b[0m"),
    ("k=", ";"),
    ("密钥在这里", "，请保密"),
    ("https://example.com/?a=", "&b=1"),
    ("| ", " |"),
    ("\ud800", "\udfff"),
]


@pytest.mark.spec("E9")
@pytest.mark.parametrize("sample", KEYS, ids=[f"{i}-{s.kind}" for i, s in enumerate(KEYS)])
def test_a_key_of_every_format_is_found_whatever_stands_around_it(sample: Sample) -> None:
    for before, after in AROUND:
        text = before + sample.text + after
        [found] = find_secrets(text)
        assert found.kind == sample.kind
        assert found.end == len(before) + len(sample.text)
        assert sample.secret[-12:] not in redact(text)
        assert redact(text).endswith(after)


def test_every_row_of_the_table_has_a_sample_and_no_kind_stands_twice() -> None:
    kinds = [row.kind for row in FORMATS]
    assert len(kinds) == len(set(kinds))
    assert set(kinds) <= {sample.kind for sample in KEYS}
    assert len(kinds) >= 60


@pytest.mark.spec("E9")
@pytest.mark.parametrize("sample", PLACES, ids=[f"{i}-{s.text[:24]!r}" for i, s in enumerate(PLACES)])
def test_a_secret_in_every_place_is_taken_out(sample: Sample) -> None:
    for text in (sample.text, f"before\n{sample.text}\nafter", f"中文{sample.text}"):
        assert sample.secret[:-1] not in redact(text)
        assert "[REDACTED]" in redact(text)


@pytest.mark.parametrize("seed", range(2, 12))
def test_other_draws_of_every_format_and_place_are_caught_too(seed: int) -> None:
    for sample in (*keys(seed), *placed(seed)):
        assert sample.secret not in redact(sample.text), sample.kind


@pytest.mark.parametrize("sample", PLACES, ids=[f"{i}-{s.text[:24]!r}" for i, s in enumerate(PLACES)])
def test_text_that_was_escaped_once_more_still_gives_its_secret_up(sample: Sample) -> None:
    escaped = json.dumps({"output": sample.text}, ensure_ascii=False)
    assert sample.secret not in redact(escaped)
    json.loads(redact(escaped))


@pytest.mark.spec("E9")
def test_what_is_left_says_what_was_there(rng_key: str) -> None:
    assert redact(f"use sk-ant-api03-{rng_key}{rng_key} now") == "use sk-ant-…[REDACTED] now"
    assert redact(f"AKIA{rng_key[:16].upper()}") == "AKIA…[REDACTED]"
    assert redact("postgres://app:hunter2@db:5432/x") == "postgres://app:[REDACTED]@db:5432/x"
    assert redact("export PASSWORD=hunter2 # dev") == "export PASSWORD=[REDACTED] # dev"
    assert redact(f"Authorization: Bearer {rng_key}") == "Authorization: Bearer [REDACTED]"


def test_a_key_block_keeps_its_first_and_last_line(rng_key: str) -> None:
    block = f"-----BEGIN PRIVATE KEY-----\n{rng_key * 3}\n{rng_key * 3}\n-----END PRIVATE KEY-----\nafter"
    assert redact(block) == "-----BEGIN PRIVATE KEY-----\n[REDACTED]\n-----END PRIVATE KEY-----\nafter"


def test_a_value_that_is_itself_a_key_is_one_secret(rng_key: str) -> None:
    [found] = find_secrets(f'API_KEY="sk-proj-{rng_key}"')
    assert (found.kind, found.visible_prefix) == ("openai-project", "sk-proj-")


def test_a_secret_beside_one_that_is_gone_already_is_still_taken_out() -> None:
    assert redact("PASSWORD=hunter2 [REDACTED]") == "PASSWORD=[REDACTED] [REDACTED]"
    assert redact("PASSWORD=[REDACTED] TOKEN=a1b2c3d4e5f6") == "PASSWORD=[REDACTED] TOKEN=[REDACTED]"


def test_secrets_come_in_order_and_apart(rng_key: str) -> None:
    found = find_secrets(f"PASSWORD=hunter2\nTOKEN={rng_key}\nhttps://a:b3c@d/ ghp_{rng_key}{rng_key}")
    assert [s.kind for s in found] == ["password", "token", "url-password", "github"]
    assert all(a.end <= b.start for a, b in pairwise(found))


@pytest.fixture
def rng_key() -> str:
    return draw_key(Random(7), 24)


@pytest.mark.parametrize("frame", ["VALUE={}", "| prod | {} | May |", "For the deploy use {} today.", '{{"v": "{}"}}'])
@pytest.mark.parametrize(
    ("head", "secret"),
    [
        ("sk_" + "test_", "gbG3tq810g"),
        ("sc_", "6pzrs.830zq.acc-ar3aem1qx7k.fxuru1k2gwi21xazqcc69zyk2mq4h7t"),
        ("EAAA", "3k76cMKlRyRu0BFctQJw8v"),
        ("1590458474452907|", "GPJ7cMKlRyRu0BFctQJw8vabc1x"),
        ("1590458474452907%7C", "GPJ7cMKlRyRu0BFctQJw8vabc1x"),
        ("hooks.slack.com/services/", "T024BE7LD/B8KQ2/x8Ztq21kLmPq0Rs7Uv9Wx"),
        ("SK", "075E54dFEFC1641E138CEfeeA8bfda9E"),
    ],
)
def test_rare_formats_are_taken_out_of_any_frame(frame: str, head: str, secret: str) -> None:
    assert secret not in redact(frame.format(head + secret))
