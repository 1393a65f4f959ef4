"""What is remembered of foreign text is bounded in bytes, not only in number."""

from __future__ import annotations

import base64
import gc
import random
import tracemalloc
from collections.abc import Callable

import pytest

from perdure.context.facts import kind_of, scan
from perdure.core.datastructures import Memo
from perdure.redaction import redact
from perdure.store.search.tokenizer import tokenize


def test_a_result_is_computed_once_and_long_keys_are_not_held() -> None:
    computed: list[str] = []

    def upper(key: str) -> str:
        computed.append(key)
        return key.upper()

    memo: Memo[str, str] = Memo(upper, max_bytes=10_000, bytes_per_char=4, longest_key=5)
    assert [memo["abc"], memo["abc"], memo["abcdefgh"], memo["abcdefgh"]] == ["ABC", "ABC", "ABCDEFGH", "ABCDEFGH"]
    assert computed == ["abc", "abcdefgh", "abcdefgh"]
    assert list(memo) == ["abc"]


def test_a_memo_never_holds_more_than_its_bytes() -> None:
    memo: Memo[str, str] = Memo(lambda key: key * 50, max_bytes=20_000, bytes_per_char=60)
    for n in range(1_000):
        assert memo[f"key {n}"] == f"key {n}" * 50
        assert memo.used_bytes <= 20_000
        assert sum(map(len, memo.values())) < 20_000
    assert memo


RUNS = random.Random(7)


def _base64(size: int) -> str:
    return base64.b64encode(RUNS.randbytes(size)).decode()


@pytest.mark.parametrize(
    "read",
    [
        tokenize,
        scan,
        lambda text: scan(f"https://host.example/{text}"),
        lambda text: kind_of(f"/x/{text}"),
        lambda text: redact(f"{text}_token = 1"),
    ],
    ids=["tokenize", "scan", "scan-url", "kind_of", "redact"],
)
@pytest.mark.parametrize("make", [_base64, lambda size: RUNS.randbytes(size).hex()], ids=["base64", "hex"])
def test_long_unbroken_runs_leave_nothing_behind(read: Callable[[str], object], make: Callable[[int], str]) -> None:
    read(make(100))
    # Twelve runs of 12,000 characters and more: 144 KB, each time, if any part of the way holds them. What a thread of
    # another test allocates meanwhile is counted as well, but not three times over.
    assert any(_bytes_held(read, make) < 80_000 for _ in range(3))


def _bytes_held(read: Callable[[str], object], make: Callable[[int], str]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(12):
            read(make(9_000))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
