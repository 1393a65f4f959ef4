"""The report of a replay: one HTML file without scripts or links, with inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import ceil

from perdure.lab.replay.batch import FailedReplay, PolicyTotals, RecordedBill, ReplayResult
from perdure.lab.replay.facts import FAR_TOKENS
from perdure.lab.replay.measures import FIRST_HITS, CompactionDetail, SessionMeasures
from perdure.lab.replay.prices import PRICE_SYSTEMS

_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f", "#475569")
_WIDTH, _HEIGHT, _MARGIN = 860, 300, 56
_LABEL_HEIGHT = 14
# The sessions whose context is drawn, and the compactions that are listed for each policy.
_DRAWN_SESSIONS = 12
_LISTED_COMPACTIONS = 6
_LISTED_MESSAGES = 12
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1e293b;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e2e8f0;white-space:nowrap}
th{white-space:normal;vertical-align:bottom;line-height:1.25;font-size:.85rem}
th:first-child,td:first-child{text-align:left}td.text{text-align:left;white-space:normal}
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2rem}h3{font-size:1rem}svg{max-width:100%;height:auto}
.wide{overflow-x:auto}.key{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin:0 .35em 0 1em}
summary{cursor:pointer}small,.note{color:#475569}
@media (prefers-color-scheme:dark){body{background:#0f172a;color:#e2e8f0}th,td{border-color:#334155}
small,.note{color:#94a3b8}svg text{fill:#cbd5e1}}
"""


def render_report(totals: Sequence[PolicyTotals], results: Iterable[ReplayResult], bill: RecordedBill) -> str:
    """The report as one HTML page."""
    done = sorted((r for r in results if isinstance(r, SessionMeasures)), key=lambda m: (m.session, m.window, m.policy))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(dict.fromkeys(t.policy for t in totals))}
    body = [
        "<h1>Context policies, replayed</h1>",
        _introduction(totals, bill),
        *(part for window in sorted({t.window for t in totals}) for part in _window_part(totals, window, colours)),
        *_context_part(done, colours),
        *_compaction_part(done),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Context policies, replayed</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _introduction(totals: Sequence[PolicyTotals], bill: RecordedBill) -> str:
    sessions = max((t.sessions + t.failed for t in totals), default=0)
    failed = sum(t.failed for t in totals)
    recorded = ""
    if bill.calls:
        recorded = (
            f" The provider really billed {bill.calls:,} calls; at Anthropic's list prices that is"
            f" <b>${bill.cost_usd:,.2f}</b>, with the recording agent's own system prompt and tools."
        )
    trouble = f" {failed:,} replays could not be finished and are left out." if failed else ""
    return (
        f"<p>{sessions:,} recorded sessions went through the agent once for each policy, with the recorded replies and"
        f" tool results; only what the model was shown differs.{recorded}{trouble}</p>"
        f'<p class="note"><b>In view</b>: of the exact facts (paths, ids, names, numbers) that a call used at least'
        f" {FAR_TOKENS:,} tokens after their last mention, the share that its prompt still had;"
        " <b>in context</b>: near words that were near them before."
        f" <b>One question away</b>: in view, or in the first {FIRST_HITS} hits of one search in the agent's own words."
        " <b>Avoidable rewrites</b>: calls that lost a live cache without need. Dollars follow from the tokens each"
        " service would have read from its cache, written to it, or billed as new.</p>"
    )


def _window_part(totals: Sequence[PolicyTotals], window: int, colours: dict[str, str]) -> Iterator[str]:
    rows = [t for t in totals if t.window == window]
    yield f"<h2>Window of {window:,} tokens</h2>"
    yield _table(rows)
    if any(t.memory is not None for t in rows):
        yield "<h3>Cost against memory</h3>"
        yield _scatter(rows, colours)


def _table(rows: Sequence[PolicyTotals]) -> str:
    main, *others = (system.title for system in PRICE_SYSTEMS.values())
    heads = [
        "Policy",
        main,
        "Facts in view",
        "One question away",
        "In context",
        "Instructions in view",
        "Compactions",
        "Avoidable rewrites",
        "Cache hits",
        "Mean context",
        "Peak context",
        *others,
        "Of it summaries",
        "Rule violations",
        "Own time",
    ]
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _row(t))}</tr>" for t in rows)
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _row(t: PolicyTotals) -> Iterator[str]:
    """The cells of a policy, in the order of the heads."""
    main, *others = PRICE_SYSTEMS
    yield escape(t.policy)
    yield f"${t.cost_usd[main]:,.2f}"
    yield _share(t.in_view, t.needs)
    yield _share(t.in_view + t.one_question, t.needs)
    yield _share(t.in_context, t.needs)
    yield _share(t.instructions_kept, t.instructions)
    yield f"{t.compactions:,}"
    yield f"{t.rewrites_avoidable:,}"
    yield f"{t.hit_rate:.1%}"
    yield f"{t.mean_tokens:,.0f}"
    yield f"{t.peak_tokens:,}"
    yield from (f"${t.cost_usd[key]:,.2f}" for key in others)
    yield f"${t.summary_cost_usd[main]:,.2f}"
    yield f"{t.violations:,}"
    yield f"{t.own_s:,.0f} s"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _scatter(rows: Sequence[PolicyTotals], colours: dict[str, str]) -> str:
    """Cost to the right, memory upwards: the best policy is at the top left."""
    system = next(iter(PRICE_SYSTEMS))
    points = [(t.cost_usd[system], t.memory, t.policy) for t in rows if t.memory is not None]
    most = max(cost for cost, _, _ in points) * 1.08 or 1.0
    least = max(0.0, min(memory for _, memory, _ in points) - 0.05)

    def x(cost: float) -> float:
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * cost / most

    def y(memory: float) -> float:
        return _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * (memory - least) / max(1e-9, 1.0 - least)

    marks = [_axes("cost in US dollars", "facts in view")]
    for i in range(5):
        value, share = most * i / 4, least + (1 - least) * i / 4
        marks.append(_label(x(value), _HEIGHT - _MARGIN + 18, f"${value:,.2f}", "middle"))
        marks.append(_label(_MARGIN - 8, y(share) + 4, f"{share:.0%}", "end"))
    label_rows: list[float] = []
    for cost, memory, name in sorted(points, key=lambda p: -p[1]):
        title = f"{name}: ${cost:,.2f}, {memory:.1%} in view"
        marks.append(
            f'<circle cx="{x(cost):.1f}" cy="{y(memory):.1f}" r="6" fill="{colours[name]}">'
            f"<title>{escape(title)}</title></circle>"
        )
        anchor, offset = ("end", -10) if x(cost) > _WIDTH * 0.6 else ("start", 10)
        # A label moves down where the one above it would cover it.
        row = max([y(memory) + 4, *(r + _LABEL_HEIGHT for r in label_rows[-1:])])
        label_rows.append(row)
        marks.append(_label(x(cost) + offset, row, name, anchor))
    return _svg(marks, "Cost against facts in view, one point for each policy")


def _context_part(done: Sequence[SessionMeasures], colours: dict[str, str]) -> Iterator[str]:
    if not done:
        return
    yield "<h2>Context over time</h2>"
    yield "<p>Prompt tokens of each call; a fall is a compaction.</p><p>"
    yield "".join(f'<span class="key" style="background:{c}"></span>{escape(name)}' for name, c in colours.items())
    yield "</p>"
    names = list(dict.fromkeys(m.session for m in done))
    for session in names[:_DRAWN_SESSIONS]:
        for window in sorted({m.window for m in done if m.session == session}):
            runs = [m for m in done if m.session == session and m.window == window]
            yield f"<h3>{escape(session)} <small>window {window:,}</small></h3>"
            yield _lines(runs, colours)
    if len(names) > _DRAWN_SESSIONS:
        yield f'<p class="note">The first {_DRAWN_SESSIONS} of {len(names):,} sessions are drawn.</p>'


def _lines(runs: Sequence[SessionMeasures], colours: dict[str, str]) -> str:
    most = max((m.peak_tokens for m in runs), default=1) or 1
    calls = max((len(m.context) for m in runs), default=1)
    marks = [_axes("calls", "prompt tokens")]
    for i in range(5):
        value = most * i / 4
        height = _HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * i / 4
        marks.append(_label(_MARGIN - 8, height + 4, f"{value / 1_000:,.0f}K", "end"))
        marks.append(_label(_MARGIN + (_WIDTH - 2 * _MARGIN) * i / 4, _HEIGHT - _MARGIN + 18, f"{calls * i // 4}"))
    for m in runs:
        step = max(1, ceil(len(m.context) / 400))
        points = " ".join(
            f"{_MARGIN + (_WIDTH - 2 * _MARGIN) * i / max(1, calls - 1):.1f},"
            f"{_HEIGHT - _MARGIN - (_HEIGHT - 2 * _MARGIN) * m.context[i] / most:.1f}"
            for i in range(0, len(m.context), step)
        )
        marks.append(
            f'<polyline points="{points}" fill="none" stroke="{colours[m.policy]}" stroke-width="1.5">'
            f"<title>{escape(m.policy)}</title></polyline>"
        )
    return _svg(marks, "Prompt tokens of each call, one line for each policy")


def _compaction_part(done: Sequence[SessionMeasures]) -> Iterator[str]:
    compacted = [m for m in done if m.details]
    if not compacted:
        return
    yield "<h2>What each compaction did</h2>"
    yield (
        "<p><b>Stayed</b>: in view word for word. <b>Line</b>: quoted by the text that replaced it. <b>Left</b>: not"
        " in view. Every message is still whole in the log of the conversation, under the address given here: the model"
        " opens it with <code>session_search</code>, you with <code>perdure sessions show ID ADDRESS</code>.</p>"
    )
    names = list(dict.fromkeys(m.session for m in compacted))[:_DRAWN_SESSIONS]
    for m in (m for m in compacted if m.session in names):
        title = f"{escape(m.session)} <small>{escape(m.policy)}, window {m.window:,}</small>"
        count = f"{m.compactions:,} compaction{'' if m.compactions == 1 else 's'}"
        yield f"<details><summary>{title}: {count}</summary>"
        for detail in m.details[:_LISTED_COMPACTIONS]:
            yield from _detail(detail)
        if len(m.details) > _LISTED_COMPACTIONS:
            yield f'<p class="note">The first {_LISTED_COMPACTIONS} of {len(m.details):,} are listed.</p>'
        yield "</details>"


def _detail(detail: CompactionDetail) -> Iterator[str]:
    yield (
        f"<p>Before call {detail.call + 1:,}: {detail.before_tokens:,} → {detail.after_tokens:,} tokens."
        f" {detail.stayed:,} messages stayed, {detail.lines:,} became a line, {detail.removed:,} left the view;"
        f" the text in their place has {detail.handoff_chars:,} characters. The largest that are no longer whole:</p>"
    )
    rows = "".join(
        f"<tr><td>{escape(d.address)}</td><td>{escape(d.role)}</td><td>{d.tokens:,}</td>"
        f'<td>{"line" if d.is_line else "left"}</td><td class="text">{escape(d.excerpt)}</td></tr>'
        for d in detail.dropped[:_LISTED_MESSAGES]
    )
    head = "<th>Address</th><th>Role</th><th>Tokens</th><th>Became</th><th>Begins with</th>"
    yield f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _axes(right: str, up: str) -> str:
    bottom, end = _HEIGHT - _MARGIN, _WIDTH - _MARGIN
    return (
        f'<path d="M{_MARGIN} {_MARGIN // 2}V{bottom}H{end}" fill="none" stroke="#94a3b8"/>'
        + _label(end, bottom + 36, right, "end")
        + _label(_MARGIN, _MARGIN // 2 - 8, up, "middle")
    )


def _label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12">{escape(text)}</text>'


def _svg(marks: Iterable[str], title: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img"'
        f' aria-label="{escape(title)}">{"".join(marks)}</svg>'
    )


def failure_lines(results: Iterable[ReplayResult]) -> list[str]:
    """Why replays could not be finished, one line each."""
    return [f"{r.session} under {r.policy}: {r.error}" for r in results if isinstance(r, FailedReplay)]
