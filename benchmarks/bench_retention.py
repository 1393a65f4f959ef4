"""How much of what an agent goes on to need is still there after a compaction, at real compaction points.

A *later-needed fact* occurs before the compaction and is next used in an argument of one of the agent's own calls. It
is kept *exactly* where the string is in the text, and *grounded* where it stands among words that stood around it in
the source. The scorer lies beside the recorded sessions, so that everybody measures alike; the summaries that the
sessions really made play the summariser.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import perdure
from benchmarks.data import EVAL, Skip
from benchmarks.table import Row

TITLE = "Retention of later-needed facts (exact / grounded, in so many characters)"

# Sessions that had no compaction are cut at these shares of their length: other people, other kinds of work, no summary
# at hand. Some figures of the ranking were chosen on the sessions above: these tell whether they hold elsewhere.
SHARES = (0.4, 0.6, 0.8)
CUT = (
    ("pi_mono", 60_000),
    ("deerflow", 60_000),
    ("trail_swe", 60_000),
    ("tau_airline_gpt4o", 8_000),
)
# They are short: a window that a session fills two and a half times over leaves room for as little as one of 64,000
# does of the long ones.
TIMES_FULL = 2.5
CHARS_PER_TOKEN = 4
LEAST_WINDOW, MOST_WINDOW = 4_000, 64_000


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation up to a compaction, the summary that was really written, and the facts needed afterwards."""

    messages: list[dict[str, Any]]
    summary: str
    gold: dict[str, str]
    source: str

    @property
    def full_window(self) -> int:
        """The window that this much text fills several times over."""
        return max(LEAST_WINDOW, min(MOST_WINDOW, int(len(self.source) / CHARS_PER_TOKEN / TIMES_FULL)))


@dataclass(frozen=True, slots=True)
class Score:
    """Shares in percent, and the mean length of the text scored."""

    exact: float
    grounded: float
    chars: float


def rows() -> Iterator[Row]:
    scorer = load_scorer()
    real = load_cases(scorer)
    small = _score(scorer, real, 64_000, has_summary=True)
    yield from _figures("64K, with a summary", small, "95", "86", "48000")
    digest = _score(scorer, real, 64_000, has_summary=False)
    yield from _figures("64K, digest only", digest, "93", "84", "48000")
    large = _score(scorer, real, 200_000, has_summary=True)
    yield from _figures("200K, with a summary", large, "99", "95", "120000")
    alone = _score(scorer, real, 200_000, has_summary=True, is_alone=True)
    yield from _figures("200K, the handoff alone", alone, "96", "85")
    bounded = _score(scorer, real, 200_000, has_summary=False, is_alone=True, max_chars=14_000)
    yield from _figures("the digest alone in 14,000 characters", bounded, "88", "72", "14000")
    for name, least in CUT:
        found = [c for at in SHARES for c in recorded_cases(scorer, name, "cases_cut", frac=at, least=least)]
        if held_out := [c for c in (_case(scorer, pre, "", post) for _, _, pre, _, post in found) if c.gold]:
            note = f"{len(held_out)} cuts, {sum(len(c.gold) for c in held_out)} facts"
            yield from _figures(f"{name}, cut, a full window, digest", _score(scorer, held_out), note=note)


def load_cases(scorer: ModuleType) -> list[Case]:
    """The recorded sessions at the points where they were really compacted."""
    recorded = recorded_cases(scorer, "entire_cli", "cases")
    cases = (_case(scorer, before, summary, after) for _, _, before, summary, after in recorded)
    return [case for case in cases if case.gold]


def _figures(
    name: str, score: Score, exact: str = "", grounded: str = "", chars: str = "", *, note: str = ""
) -> Iterator[Row]:
    yield Row(f"{name}: exact", score.exact, "%", f">= {exact}" if exact else None, note)
    yield Row(f"{name}: grounded", score.grounded, "%", f">= {grounded}" if grounded else None)
    yield Row(f"{name}: length", score.chars, "chars", f"<= {chars}" if chars else None)


def _score(
    scorer: ModuleType,
    cases: Sequence[Case],
    window: int | None = None,
    *,
    has_summary: bool = False,
    is_alone: bool = False,
    max_chars: int | None = None,
) -> Score:
    facts = exact = grounded = chars = 0
    for case in cases:
        report = perdure.compress(
            case.messages,
            context_length=window or case.full_window,
            summarize=_saying(case.summary) if has_summary else None,
            handoff_max_chars=max_chars,
        )
        text = (report.handoff or "") if is_alone else visible_text(scorer, report.messages)
        found, _, supported = scorer.score(case.gold, text, case.source)
        facts, exact, grounded = facts + len(case.gold), exact + found, grounded + supported
        chars += len(text)
    return Score(100 * exact / facts, 100 * grounded / facts, chars / len(cases))


def _saying(summary: str) -> Callable[[str], str]:
    return lambda prompt: summary


def _case(scorer: ModuleType, before: list[dict[str, Any]], summary: str, after: list[dict[str, Any]]) -> Case:
    return Case(before, summary, scorer.gold(before, after), visible_text(scorer, before))


def visible_text(scorer: ModuleType, messages: Sequence[dict[str, Any]]) -> str:
    return "\n".join(f"{scorer.text_of(m)}\n{scorer.args_text(m)}" for m in messages)


def recorded_cases(scorer: ModuleType, name: str, kind: str, **options: float) -> Iterator[tuple[Any, ...]]:
    path = EVAL / "data" / f"{name}.jsonl.gz"
    if not path.is_file():
        raise Skip(f"recorded sessions are not here ({path.name})")
    yield from getattr(scorer, kind)(str(path), **options)


def load_scorer() -> ModuleType:
    path = EVAL / "retention.py"
    if not path.is_file():
        raise Skip("the scorer of the recorded sessions is not here (retention.py)")
    spec = importlib.util.spec_from_file_location("retention", path)
    if spec is None or spec.loader is None:
        raise Skip("the scorer of the recorded sessions cannot be read")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
