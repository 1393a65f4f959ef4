from __future__ import annotations

import json
from email.utils import formatdate

import pytest

from perdure.core.messages import assistant
from perdure.providers.errors.body import parse_error_body
from perdure.providers.errors.classify import HUGE_REQUEST_TOKENS, classify_error
from perdure.providers.errors.limits import IMAGE_ROWS, TIER_ROWS
from perdure.providers.errors.overflow_patterns import CAP_ROWS, SUM_ROWS
from perdure.providers.errors.patterns import FAULT_ROWS, GENERIC_ROWS, PROMPT_ROWS, SIZE_ROWS
from perdure.providers.types import Reply, overflow_verdict
from support.error_samples import REFERENCE, Sample, anthropic, openai
from support.error_variants import VARIANTS

LIMIT_ROWS = (*SUM_ROWS, *CAP_ROWS, *PROMPT_ROWS, *SIZE_ROWS, *GENERIC_ROWS)
KINDS = {"prompt": {"prompt_too_long"}, "cap": {"output_cap"}, "sum": {"output_cap"}, "total": {"prompt_too_long"}}


def name(sample: object) -> str:
    return sample.service if isinstance(sample, Sample) else str(sample)[:40]


def check(sample: Sample, body: object) -> None:
    verdict = classify_error(sample.status, body, request_tokens=sample.request_tokens)
    got = (verdict.kind, verdict.context_limit, verdict.output_limit)
    assert got == (sample.kind, sample.context_limit, sample.output_limit), verdict


@pytest.mark.spec("G1")
@pytest.mark.parametrize("sample", REFERENCE, ids=name)
def test_every_reference_sample_gives_its_kind_and_its_limits(sample: Sample) -> None:
    check(sample, sample.body)


@pytest.mark.spec("G1")
@pytest.mark.parametrize("sample", VARIANTS, ids=name)
def test_further_wordings_wrappers_and_traps(sample: Sample) -> None:
    check(sample, sample.body)


@pytest.mark.spec("G1")
@pytest.mark.parametrize("sample", [s for s in (*REFERENCE, *VARIANTS) if isinstance(s.body, dict | list)], ids=name)
def test_text_and_bytes_of_a_body_mean_the_same_as_the_decoded_body(sample: Sample) -> None:
    check(sample, json.dumps(sample.body))
    check(sample, json.dumps(sample.body, ensure_ascii=False, indent=2).encode())


def test_there_are_enough_variants_of_our_own() -> None:
    assert len(VARIANTS) >= 40
    assert len({s.service for s in VARIANTS}) == len(VARIANTS)


@pytest.mark.spec("G1")
@pytest.mark.parametrize("row", LIMIT_ROWS, ids=lambda r: f"{r.kind}-{r.service}")
def test_every_length_row_matches_its_own_sample(row: object) -> None:
    assert row.pattern.search(parse_error_body(row.sample).text), "the sample is not what the pattern is for"
    verdict = classify_error(row.status, row.sample)
    assert verdict.kind in KINDS[row.kind]
    wanted = row.pattern.search(parse_error_body(row.sample).text).groupdict()
    if wanted.get("window"):
        assert verdict.context_limit == int(wanted["window"])
    if wanted.get("cap"):
        assert verdict.output_limit == int(wanted["cap"])


@pytest.mark.spec("G1")
@pytest.mark.parametrize(("row", "sample"), [(r, s) for r in FAULT_ROWS for s in r.samples], ids=lambda v: str(v)[:30])
def test_every_fault_row_matches_its_own_samples(row: object, sample: tuple[int | None, str]) -> None:
    assert classify_error(*sample).kind == row.kind


@pytest.mark.spec("G1")
def test_a_prompt_that_fills_the_window_exactly_leaves_no_room_for_output() -> None:
    text = "input length and `max_tokens` exceed context limit: {} + 8192 > 200000"
    assert classify_error(400, anthropic(text.format(200000))).kind == "prompt_too_long"
    verdict = classify_error(400, anthropic(text.format(199999)))
    assert (verdict.kind, verdict.output_limit) == ("output_cap", 1)


@pytest.mark.spec("G1")
def test_a_bare_400_is_an_overflow_from_a_stated_size_on() -> None:
    for body in (None, "", b"", "  ", {}, "{}", "null", {"error": None}, {"error": {"message": ""}}, "Bad Request"):
        assert classify_error(400, body, request_tokens=HUGE_REQUEST_TOKENS).kind == "prompt_too_long", body
        assert classify_error(400, body, request_tokens=HUGE_REQUEST_TOKENS - 1).kind == "bad_request", body


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("headers", "body", "wait_s"),
    [
        ({"Retry-After": "20"}, "", 20.0),
        ({"retry-after": "1.5"}, "", 1.5),
        ({"Retry-After-Ms": "1500", "Retry-After": "9"}, "", 1.5),
        ([(b"retry-after", b"3")], "", 3.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT", "Date": "Wed, 21 Oct 2015 07:27:00 GMT"}, "", 60.0),
        ({"Retry-After": formatdate(1_700_000_090, usegmt=True)}, "", 90.0),
        ({"Retry-After": formatdate(1_600_000_000, usegmt=True)}, "", 0.0),
        ({"x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "0"}, "", 360.0),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-reset-tokens": "120ms",
                "x-ratelimit-remaining-tokens": "0",
            },
            "",
            0.12,
        ),
        ({"anthropic-ratelimit-tokens-reset": "2023-11-14T22:14:20Z"}, "", 60.0),
        ({"X-RateLimit-Reset": "1700000030000"}, "", 30.0),
        ({}, "Rate limit reached. Please try again in 6.008s.", 6.008),
        ({}, "rate limit: try again in 1h2m3.5s", 3723.5),
        ({}, {"error": {"message": "rate limited", "details": [{"retryDelay": "38s"}]}}, 38.0),
        ({}, {"error": {"type": "usage_limit_reached", "message": "x", "resets_in_seconds": 5400}}, 5400.0),
        ({"Retry-After": "soon"}, "", None),
        ({"Retry-After": "-5"}, "", None),
        ({"Retry-After": "9999999999"}, "", 31 * 86_400.0),
        (None, "please try again later", None),
        ("nonsense", "", None),
    ],
)
def test_the_wait_a_service_asks_for_is_found(headers: object, body: object, wait_s: float | None) -> None:
    verdict = classify_error(429, body, headers=headers, now_s=1_700_000_000.0)
    assert verdict.retry_after_s == pytest.approx(wait_s)


def test_no_wait_is_stated_where_waiting_does_not_help() -> None:
    verdict = classify_error(400, anthropic("prompt is too long: 9 tokens > 8 maximum"), headers={"Retry-After": "9"})
    assert verdict.retry_after_s is None


def test_the_message_is_the_innermost_sentence_on_one_line() -> None:
    inner = anthropic("prompt is too long:\n 9 tokens > 8 maximum")
    wrapped = {"error": {"message": "Provider returned error", "metadata": {"raw": inner}}}
    assert classify_error(400, wrapped).message == "prompt is too long: 9 tokens > 8 maximum"
    page = "<html><head><title>502 Bad Gateway</title><style>p{}</style></head><body>x</body></html>"
    assert classify_error(502, page).message == "502 Bad Gateway"
    assert classify_error(503, None).message == "HTTP 503 without a reason"
    assert len(classify_error(500, "x" * 100_000).message) <= 600


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "bad_request"),
        (401, "auth"),
        (402, "quota"),
        (403, "auth"),
        (404, "bad_request"),
        (408, "transport"),
        (409, "bad_request"),
        (413, "prompt_too_long"),
        (422, "bad_request"),
        (429, "rate_limit"),
        (500, "overloaded"),
        (502, "transport"),
        (503, "overloaded"),
        (504, "transport"),
        (522, "transport"),
        (529, "overloaded"),
        (302, "unknown"),
    ],
)
def test_a_body_that_says_nothing_leaves_the_word_to_the_status(status: int, kind: str) -> None:
    assert classify_error(status, openai("Something went sideways.", type="x")).kind == kind


def test_a_status_inside_the_body_counts_where_none_came_with_it() -> None:
    body = {"error": {"code": 502, "message": "Provider returned error"}}
    assert classify_error(None, body).kind == "transport"
    assert classify_error(200, body).status == 502
    assert classify_error(400, body).status == 400


@pytest.mark.spec("G1")
def test_a_full_window_as_a_stop_reason_is_an_overflow() -> None:
    verdict = overflow_verdict(Reply(assistant("half a"), finish="context_overflow"))
    assert verdict is not None
    assert verdict.kind == "prompt_too_long"
    assert overflow_verdict(Reply(assistant("whole"), finish="stop")) is None


@pytest.mark.spec("G1")
@pytest.mark.parametrize(
    ("status", "kind"), [("429", "rate_limit"), (" 401 ", "auth"), ("?", "transport"), (True, "transport")]
)
def test_a_status_that_came_as_text_is_read_and_one_that_is_none_says_nothing(status: object, kind: str) -> None:
    assert classify_error(status, "").kind == kind  # type: ignore[arg-type]  # what callers hand in by mistake


@pytest.mark.spec("G1", "G3")
@pytest.mark.parametrize("row", IMAGE_ROWS, ids=lambda r: r.service)
def test_a_number_of_images_is_never_a_window(row: object) -> None:
    for body in (anthropic(row.sample), openai(row.sample)):
        verdict = classify_error(row.status, body)
        stated = row.pattern.search(row.sample).groupdict().get("most")
        assert (verdict.kind, verdict.context_limit) == ("bad_request", None)
        assert verdict.image_limit == (int(stated) if stated else None)


@pytest.mark.spec("G1")
@pytest.mark.parametrize("row", TIER_ROWS, ids=lambda r: r.service)
def test_a_request_larger_than_its_rate_tier_is_too_long_and_states_no_window(row: object) -> None:
    verdict = classify_error(row.status, openai(row.sample, code="rate_limit_exceeded"))
    most = int(row.pattern.search(row.sample)["most"])
    assert (verdict.kind, verdict.context_limit, verdict.request_limit) == ("prompt_too_long", None, most)
    fits = row.sample.replace("Requested 14810", "Requested 5810").replace("Requested 45000", "Requested 29000")
    assert classify_error(row.status, openai(fits, code="rate_limit_exceeded")).kind == "rate_limit"
