"""What holds for any text: nothing raises, a second time changes nothing, time stays linear."""

from __future__ import annotations

import time

import pytest
from benchmarks.secret_places import placed
from benchmarks.secret_samples import Sample, keys
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.redaction import are_clean, find_secrets, redact

SAMPLES = [s for seed in (21, 22) for s in (*keys(seed), *placed(seed))]
KEYS = list(keys(23))
# Pieces that bring the patterns to life, so that random texts are near misses instead of noise.
PIECES = [
    *("password", "token", "api_key", "secret", "=", ":", '"', "'", "`", '\\"', "\\n", "[REDACTED]", "…[REDACTED]"),
    *("sk-", "sk-ant-", "ghp_", "AKIA", "eyJ", ".", "-", "_", "://", "@", "a", "b3", "Q7xZ9", "hunter2", "is", "value"),
    *("-----BEGIN", "-----END", "PRIVATE KEY-----", "MIIEpAIBAAKCAQEA7Zt9LmX2vBn4", "Bearer", "Basic", "Authorization"),
    *("Cookie", ";", ",", "(", ")", "{", "}", "<", ">", "$", "密码", "：", "😀", "\ud800", "\x1b[31m", "--password"),
    *(
        "|",
        "| token |",
        "\n|---|---|\n",
        "api key is ",
        " as the api key",
        "acme_live_",
        "AB_",
        "zX9kQ2mT7vL4pR8sW1nB6cJ3",
        "a_pat,",
    ),
    *("sig=", "&", "?", "https", "hooks.slack.com/services/", "curl", "-u", " ", "\n", "\t"),
]
near_misses = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
any_text = st.text(st.characters(exclude_categories=[]), max_size=300)
no_anchor = st.text(st.sampled_from("áéíöβγ 你好ありがとう안녕 .,;!()\n0123456789efg"), max_size=400)


@pytest.mark.spec("E9")
@settings(max_examples=300, deadline=None)
@given(near_misses | any_text)
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert find_secrets(once) == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([s.text for s in SAMPLES]) | near_misses, max_size=6),
    st.sampled_from(["", " ", "\n", "'", "\\n"]),
)
def test_secrets_side_by_side_stay_redacted(pieces: list[str], between: str) -> None:
    once = redact(between.join(pieces))
    assert redact(once) == once


@settings(max_examples=150, deadline=None)
@given(any_text, st.sampled_from(KEYS), any_text)
def test_a_key_in_any_text_is_taken_out(before: str, sample: Sample, after: str) -> None:
    assert sample.secret not in redact(f"{before} {sample.text} {after}")


@settings(max_examples=150, deadline=None)
@given(no_anchor)
def test_text_without_anything_telling_is_unchanged(text: str) -> None:
    assert redact(text) == text


@settings(max_examples=100, deadline=None)
@given(near_misses | any_text)
def test_found_secrets_lie_in_the_text_in_order_and_keep_only_their_start(text: str) -> None:
    end = 0
    for secret in find_secrets(text):
        assert end <= secret.start < secret.end <= len(text)
        assert text.startswith(secret.visible_prefix, secret.start)
        end = secret.end


# How a text may end, or begin, so as to hide what stands in the next one: names waiting for a value, open quotes, open
# blocks, encoded data, half a key.
EDGES = [
    *("", "password = ", "token: '", '"api_key": "', "https://user:", "-----BEGIN RSA PRIVATE KEY-----", "A" * 3_000),
    *("sk-", "mysql -p", "Authorization: Bearer ", "Set-Cookie: a=", "\\", "[REDACTED]", "…[REDACTED]", "x" * 200),
]


@pytest.mark.spec("E9")
@given(st.sampled_from(SAMPLES), st.lists(st.sampled_from([*PIECES, *EDGES]), max_size=6), st.integers(0, 6))
def test_a_secret_among_other_texts_is_never_overlooked(sample: Sample, others: list[str], at: int) -> None:
    if find_secrets(sample.text):
        assert not are_clean([*others[:at], sample.text, *others[at:]])


@given(st.lists(st.one_of(st.text(), st.sampled_from(PIECES)), max_size=5))
def test_many_texts_are_clean_together_only_if_each_is(texts: list[str]) -> None:
    if are_clean(texts):
        assert [find_secrets(text) for text in texts] == [[] for _ in texts]


REPEATED = [
    *("password=", "PASSWORD=", "PASSWORD=x1;", 'password="', "sk-", "-eyJ", "eyJ.", "sk-ant-", "://", "://a:b@"),
    *("://a:b@c,", "cookie:a=b;", "authorization:", "?sig=", "api_key:", "密码", "curl\t-u", "mysql -p", "token is "),
    *("my_", "your-", "ghp_a", "12345678:AA", "a.b-", "q8Q~", "\ud800", "\\\"'`", "://hooks.slack.com/services/"),
    *(
        "&token=",
        "api key ",
        "| token ",
        "token,",
        "\ntoken,token",
        "token\t",
        "| a | token |\n|---|---|\n",
        "api_key,b\n1,2\n",
    ),
    *(" as the key", "token to a1 ", "ab_c1D2e3F4g5H6i7J8k9L0", "aZ9+", "aZ9.", "abc1234567890defghijk.", "a_pat "),
    *("deadbeef00", "1", "-----BEGIN PRIVATE KEY-----\n", "bearer ", "password is ", "my_key_"),
]


@pytest.mark.parametrize("piece", REPEATED)
def test_no_repeated_piece_takes_more_than_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = (piece * (size // len(piece) + 1))[:size]
        start = time.process_time()
        redact(text)
        return time.process_time() - start

    seconds(1000)
    # Eight times the text may take up to 24 times as long before this fails; quadratic time would take 64 times.
    # Whatever else the machine does can only make it slower, so that one quick pass of three is proof.
    assert any(seconds(80_000) <= 24 * seconds(10_000) + 0.02 for _ in range(3))


@pytest.mark.soak
@pytest.mark.parametrize(
    "piece", ["a", " ", "the quick brown fox\n", "iVBORw0KGgo", "x = compute(y)\n", "你好，世界。"]
)
def test_fifty_megabytes_pass(piece: str) -> None:
    text = piece * (50_000_000 // len(piece))
    assert redact(text) == text


def test_a_secret_at_the_end_of_five_megabytes_is_found() -> None:
    text = "def f(x):\n    return x + 1  # 说明\n" * 150_000 + "PASSWORD=hunter2"
    assert redact(text) == text.replace("hunter2", "[REDACTED]")


@pytest.mark.parametrize(
    "text", ["", " ", "\ud800", "\udfff\ud800", "\x00", "password", "password=", "://", "=", "sk-"]
)
def test_scraps_pass_unchanged(text: str) -> None:
    assert redact(text) == text
