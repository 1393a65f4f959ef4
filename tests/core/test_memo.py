"""What is remembered of foreign text is bounded in bytes, not only in number."""

from __future__ import annotations

import base64
import gc
import random
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from perdure.context.exact_values import kind_of, scan
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


@pytest.fixture(scope="module", autouse=True)
def small_heap() -> None:
    """Keep what earlier tests left out of the collections here, which would take up to a second each."""
    gc.collect()
    gc.freeze()


RUNS = random.Random(7)
# Deeper than anything that is read goes.
FRAMES = 40


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
    # Twelve runs of 12,000 characters and more: 144 KB if any part of the way holds them. What a thread of another test
    # allocates meanwhile is counted as well; only if it is too much do we look, slowly, at who allocated what.
    assert _bytes_held(read, make) < 80_000 or _bytes_held(read, make, frames=FRAMES) < 80_000


@pytest.mark.parametrize("frames", [0, FRAMES])
def test_what_is_left_behind_is_measured(frames: int) -> None:
    held: list[str] = []
    assert _bytes_held(held.append, _base64, frames=frames) > 140_000


def test_what_other_threads_allocate_is_told_apart() -> None:
    held: list[bytes] = []
    with ThreadPoolExecutor(1) as other:

        def read(_: str) -> None:
            held.append(other.submit(bytes, 100_000).result())

        assert _bytes_held(read, _base64) > 1_000_000
        assert _bytes_held(read, _base64, frames=FRAMES) < 80_000


def _bytes_held(read: Callable[[str], object], make: Callable[[int], str], *, frames: int = 0) -> int:
    """What is still held after a few runs; with `frames`, without what was not allocated below this function."""
    gc.collect()
    tracemalloc.start(frames or 1)
    try:
        for _ in range(12):
            read(make(9_000))
        gc.collect()
        if not frames:
            return tracemalloc.get_traced_memory()[0]
        ours = tracemalloc.Filter(inclusive=True, filename_pattern=__file__, all_frames=True)
        return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([ours]).traces)
    finally:
        tracemalloc.stop()
