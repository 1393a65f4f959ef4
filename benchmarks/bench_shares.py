"""How much a compaction should keep: tail and record shares against later-needed facts and tokens per later call.

The recorded sessions are compacted by code alone under each choice. *Kept* is the share of later-needed facts that are
in view word for word, *tokens* what every call after the compaction sends, *spread* how long the next compaction is
away: the tokens that fit below the threshold.
"""

from __future__ import annotations

from collections.abc import Iterator

import perdure
from benchmarks.bench_retention import load_cases, load_scorer, visible_text
from benchmarks.table import Row
from perdure.config.sections import CompressionSettings
from perdure.models.windows import window_budgets

TITLE = "Shares of tail and record (facts kept, tokens per later call, tokens until the next compaction)"
WINDOWS = (32_000, 64_000, 100_000, 200_000)
TAILS = (0.1, 0.2, 0.3)
RECORDS = (0.06, 0.088, 0.12)


def rows() -> Iterator[Row]:
    scorer = load_scorer()
    cases = load_cases(scorer)
    for window in WINDOWS:
        for tail in TAILS:
            for record in RECORDS:
                choices = {"target_ratio": tail, "record_ratio": record}
                kept = facts = tokens = 0
                for case in cases:
                    report = perdure.compress(case.messages, context_length=window, settings=choices)
                    exact, _, _ = scorer.score(case.gold, visible_text(scorer, report.messages), case.source)
                    kept, facts, tokens = kept + exact, facts + len(case.gold), tokens + report.after_tokens
                mean = tokens // len(cases)
                threshold = window_budgets(window, CompressionSettings.model_validate(choices)).threshold_tokens
                name = f"{window:,} tail {tail:.0%} record {record:.1%}"
                yield Row(name, 100 * kept / facts, "%", None, f"{mean:,} tokens, {threshold - mean:,} until the next")
