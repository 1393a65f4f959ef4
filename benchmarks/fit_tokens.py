"""Fits the weights of a tokenizer family: `python -m benchmarks.fit_tokens o200k` prints a row for models/tokens.py.

The vocabulary is `o200k` or `cl100k` (from rs_bpe), a `tokenizer.json` (needs `tokenizers`), or a file of ranks in
tiktoken's format (needs `tiktoken`). The texts are the recorded sessions, Python's own sources and documentation, the
machine's message catalogues for other languages, and made-up identifiers, numbers and logs.

Two least-squares fits of relative error, no weight below zero, far outliers counted less: first what is ASCII, then,
with that fixed, the other scripts. Each kind of text weighs the same however much of it there is.

`python -m benchmarks.fit_tokens o200k --without entire_cli` fits without one recorded file, then measures on that file:
what the weights are worth on text they never saw.
"""

from __future__ import annotations

import argparse
import base64
import gettext
import random
import sysconfig
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.token_pieces import KINDS, pieces
from perdure.models.text_stats import ASCII_COUNTS, COUNT_NAMES, count_text

Sample = tuple[str, tuple[int, ...], int]  # kind, counts, real tokens

LANGUAGES = ("ja", "ko", "zh_CN", "ru", "uk", "ar", "he", "hi", "bn", "th", "el", "fr", "de", "es", "pl", "vi")
WEIGHTS = dict.fromkeys(KINDS, 1.0) | {"python": 0.3, "manual": 0.3, "log": 0.1, "digits": 0.1, "base64": 0.05}
WEIGHTS |= {"hex": 0.05, "letters": 0.05} | dict.fromkeys(LANGUAGES, 0.3)
# Catalogues hold short sentences full of terms: where there are real conversations, those say more.
WEIGHTS |= {"ja": 0.1, "ko": 0.3, "zh_CN": 0.1}
MOSTLY_ASCII = 0.004
# A file of ranks does not say how text is cut first: words, up to three digits, marks, line ends, spaces.
TIKTOKEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# A character of any script costs something, however few samples say so: text without spaces must not come out free.
FLOORS = {
    "hangul": 0.1,
    "kana": 0.2,
    "greek_cyrillic": 0.2,
    "hebrew_arabic": 0.2,
    "viet_georgian": 0.1,
    "symbols": 0.2,
    "symbol_bars": 0.2,
}


def main(name: str, without: str | None = None) -> None:
    count = load_vocabulary(name)
    plain: list[Sample] = []
    scripts: list[Sample] = []
    held_out: list[Sample] = []
    for source, kind, text in texts():
        sample = (kind, count_text(text), max(1, count(text)))
        if source == without:
            held_out.append(sample)
            continue
        outside = sum(c > "\x7f" for c in text) / len(text)
        # Other languages in plain letters would make English look longer than it is.
        (plain if outside < MOSTLY_ASCII and kind not in LANGUAGES else scripts).append(sample)
    ascii_weights = fit(plain, range(len(ASCII_COUNTS)), [])
    weights = ascii_weights + fit(scripts, range(len(ASCII_COUNTS), len(COUNT_NAMES)), ascii_weights)
    for label, weight in zip(COUNT_NAMES, weights, strict=True):
        print(f"{weight:8.3f}  {label}")
    print("(" + ", ".join(f"{w:.3f}" for w in weights) + ")")
    report(held_out or plain + scripts, weights)


def texts() -> Iterator[tuple[str, str, str]]:
    """Source, kind and text of everything the weights are fitted on."""
    yield from ((p.source, p.kind, p.text) for p in pieces())
    yield from (("", kind, text) for kind, text in _other_texts())


def _other_texts() -> Iterator[tuple[str, str]]:
    rng = random.Random(5)
    library = sysconfig.get_path("stdlib")
    yield from _cuts("python", [p.read_text("utf-8", "replace") for p in sorted(Path(library).glob("*.py"))], rng)
    yield from _cuts("manual", [Path(library, "pydoc_data", "topics.py").read_text("utf-8")] * 60, rng)
    for language in LANGUAGES:
        yield from _cuts(language, [_catalogue(language)] * 60, rng)
    for _ in range(30):
        yield "base64", base64.b64encode(rng.randbytes(600)).decode()
        yield (
            "hex",
            "\n".join(
                rng.choice((rng.randbytes(32).hex(), str(uuid.UUID(bytes=rng.randbytes(16))))) for _ in range(12)
            ),
        )
        yield "digits", " ".join(f"{rng.uniform(0, 10 ** rng.randrange(1, 8)):.{rng.randrange(6)}f}" for _ in range(80))
        yield "log", "\n".join(_log_line(rng) for _ in range(9))
        alphabet = rng.choice(("abcdefghijklmnopqrstuvwxyz", "ACGT", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        yield "letters", " ".join("".join(rng.choices(alphabet, k=rng.choice((20, 40, 80)))) for _ in range(12))


def _cuts(kind: str, sources: Sequence[str], rng: random.Random) -> Iterator[tuple[str, str]]:
    for source in sources:
        if len(source) > 1_000:
            start = rng.randrange(len(source) - 500)
            yield kind, source[start : start + rng.choice((500, 1_000, 3_000))]


def _catalogue(language: str) -> str:
    lines: list[str] = []
    for path in sorted(Path("/usr/share/locale").glob(f"{language}/LC_MESSAGES/*.mo")):
        if path.name.startswith("iso_"):
            continue  # lists of names, not sentences
        try:
            with path.open("rb") as file:
                translated = gettext.GNUTranslations(file)._catalog.values()  # type: ignore[attr-defined]  # no public way
        except UnicodeDecodeError:
            continue  # a few catalogues say one encoding and use another
        lines += [text for text in translated if isinstance(text, str) and len(text) > 40][:200]
    random.Random(language).shuffle(lines)
    return "\n".join(lines)


def _log_line(rng: random.Random) -> str:
    day, hour, second = rng.randrange(1, 29), rng.randrange(24), rng.randrange(60)
    what = rng.choice(("request served", "cache miss", "retrying upstream", "connection reset by peer"))
    level, took = rng.choice(("INFO", "WARN", "ERROR")), rng.randrange(500)
    return f"2026-03-{day:02}T{hour:02}:{second:02}:07.{took:03}Z {level} [{rng.randrange(9999)}] {what} ms={took}"


def fit(samples: Sequence[Sample], columns: range, fixed: Sequence[float]) -> list[float]:
    """Non-negative weights of some counts, what other counts already explain taken off."""
    share = _shares([s[0] for s in samples])
    rows = [[counts[c] / real for c in columns] for _, counts, real in samples]
    targets = [1 - sum(w * c for w, c in zip(fixed, counts, strict=False)) / real for _, counts, real in samples]
    floors = [FLOORS.get(COUNT_NAMES[c], 0.0) for c in columns]
    weights = floors
    trust = [1.0] * len(samples)
    for _ in range(4):
        weights = _solve(rows, targets, [t * s for t, s in zip(trust, share, strict=True)], floors)
        errors = (abs(_dot(r, weights) - t) for r, t in zip(rows, targets, strict=True))
        trust = [min(1.0, 0.06 / max(e, 1e-9)) for e in errors]
    return weights


def _shares(kinds: Sequence[str]) -> list[float]:
    number = {kind: kinds.count(kind) for kind in set(kinds)}
    return [WEIGHTS[kind] / number[kind] for kind in kinds]


def _solve(
    rows: Sequence[Sequence[float]], targets: Sequence[float], trust: Sequence[float], floors: Sequence[float]
) -> list[float]:
    """Coordinate descent on the normal equations, each weight held at or above its floor."""
    n = len(rows[0])
    gram = [[0.0] * n for _ in range(n)]
    right = [0.0] * n
    for row, target, t in zip(rows, targets, trust, strict=True):
        live = [(i, v) for i, v in enumerate(row) if v]
        for i, v in live:
            right[i] += t * v * target
            for j, u in live:
                gram[i][j] += t * v * u
    weights = list(floors)
    for _ in range(4_000):
        for i in range(n):
            if gram[i][i] > 0:
                rest = right[i] - _dot(gram[i], weights) + gram[i][i] * weights[i]
                weights[i] = max(floors[i], rest / (gram[i][i] * (1 + 1e-6)))
    return weights


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def report(samples: Sequence[Sample], weights: Sequence[float]) -> None:
    for kind in WEIGHTS:
        errors = sorted(_dot(counts, weights) / real - 1 for k, counts, real in samples if k == kind)
        if errors:
            sizes = sorted(map(abs, errors))
            middle, far = sizes[len(sizes) // 2], sizes[int(len(sizes) * 0.95)]
            print(f"  {kind:9} median {middle:6.1%}  p95 {far:6.1%}  bias {sum(errors) / len(errors):+6.1%}")


def load_vocabulary(name: str) -> Callable[[str], int]:
    """A counter of real tokens."""
    if name in ("o200k", "cl100k"):
        from rs_bpe.bpe import openai

        vocabulary = openai.o200k_base() if name == "o200k" else openai.cl100k_base()
        return lambda text: int(vocabulary.count(text))
    if name.endswith(".json"):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(name)
        return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
    import tiktoken

    lines = (line.split() for line in Path(name).read_bytes().splitlines() if line.strip())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    encoding = tiktoken.Encoding(name, pat_str=TIKTOKEN_PATTERN, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("vocabulary", nargs="?", default="o200k")
    arguments.add_argument("--without", help="a recorded file to leave out and to measure on")
    given = arguments.parse_args()
    main(given.vocabulary, given.without)
