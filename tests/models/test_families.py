"""Families: every model name finds one, and each one measures ordinary text about as its tokenizer would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rs_bpe.bpe import openai

from perdure.models.text_stats import COUNT_NAMES, count_text
from perdure.models.tokens import estimate_text, family_names, family_of

SAMPLES = {
    "English": (
        "A long conversation does not have to end because a window is full. What was said stays in the log, word for "
        "word, and a short summary takes its place in the request. Whoever wants to know more opens the address that "
        "the summary prints, and reads the original. That is slower than remembering, but it never invents anything. "
    )
    * 2,
    "code": (
        "def window_budgets(window: int, *, threshold: float = 0.5) -> dict[str, int]:\n"
        "    tokens = int(window * threshold)\n"
        "    for name, share in sorted(shares.items()):\n"
        '        result[name] = min(tokens, round(window * share))  # never above "tokens"\n'
        "    return {key: value for key, value in result.items() if value > 0}\n\n"
    )
    * 3,
    "JSON": '{"path": "src/main.py", "offset": 120, "limit": 40, "is_recursive": true, "pattern": "def [a-z_]+"}\n' * 6,
    "Chinese": "对话再长，也不必因为窗口满了而结束。说过的话都留在日志里，一字不差；请求里只放一段简短的摘要。" * 9,
    "Japanese": "会話がどれだけ長くなっても、ウィンドウがいっぱいになったからといって終わる必要はありません。" * 9,
    "Korean": (
        "대화가 아무리 길어져도 창이 가득 찼다는 이유로 끝낼 필요는 없습니다. 모든 말은 기록에 남아 있습니다. "
        "요청에는 짧은 요약만 들어가고, 더 알고 싶은 사람은 요약에 적힌 주소를 열어 원문을 읽으면 됩니다. "
        "설정 파일을 먼저 확인해 주세요. 그 다음에 테스트를 다시 실행하고 결과를 알려 주시면 고맙겠습니다. "
        "어제 고친 오류가 오늘 아침에 다시 나타났는데, 아마 캐시가 지워지지 않았기 때문인 것 같습니다. "
    )
    * 3,
}


@pytest.mark.spec("B2")
@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-5.5", "o200k"),
        ("gpt-4o-mini", "o200k"),
        ("gpt-4.1", "o200k"),
        ("o3", "o200k"),
        ("gpt-4-turbo", "cl100k"),
        ("gpt-4", "cl100k"),
        ("gpt-3.5-turbo", "cl100k"),
        ("anthropic/claude-sonnet-4.5", "claude"),
        ("us.anthropic.claude-opus-4-8-v1:0", "claude"),
        ("meta-llama/Llama-3.3-70B-Instruct-Turbo", "llama"),
        ("deepseek-chat", "deepseek"),
        ("Qwen/Qwen3-Coder", "qwen"),
        ("devstral-small", "mistral"),
        ("gemini-3-pro", "gemini"),
        ("something-new", "o200k"),
        ("", "o200k"),
        (None, "o200k"),
    ],
)
def test_a_model_finds_its_family_by_name(model: str | None, family: str) -> None:
    assert family_of(model).name == family


@pytest.mark.spec("B2")
@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("model", ["gpt-5", "gpt-4"])
def test_estimates_stay_near_a_real_vocabulary(kind: str, model: str) -> None:
    vocabulary = openai.o200k_base() if model == "gpt-5" else openai.cl100k_base()
    real = vocabulary.count(SAMPLES[kind])
    assert estimate_text(SAMPLES[kind], model) == pytest.approx(real, rel=0.15)


@pytest.mark.spec("B2")
def test_chinese_is_neither_four_characters_a_token_nor_one() -> None:
    text = SAMPLES["Chinese"]
    assert 0.4 < estimate_text(text, "gpt-5") / len(text) < 1.1


@pytest.mark.parametrize("name", family_names())
def test_every_weight_of_every_family_is_there_and_not_negative(name: str) -> None:
    weights = family_of({"o200k": "gpt-5", "cl100k": "gpt-4"}.get(name, name)).weights
    assert len(weights) == len(COUNT_NAMES)
    assert min(weights) >= 0


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "7" * 100_000, "я" * 100_000, "汉" * 100_000, "ก" * 100_000, "=" * 100_000]
)
def test_runs_without_an_end_are_never_free(text: str) -> None:
    for name in ("gpt-5", "gpt-4", "claude", "llama", "deepseek", "qwen", "mistral", "gemini"):
        assert estimate_text(text, name) >= 1_000


@given(st.text(max_size=400))
def test_an_estimate_is_bounded_by_the_bytes(text: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    tokens = family_of("gpt-5").text_tokens(count_text(text))
    assert 0 <= tokens <= 3 * size
