"""The report of a replay: one HTML file without scripts or links, with inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import ceil
from textwrap import shorten

from perdure.lab.replay.batch import FailedReplay, PolicyTotals, RecordedBill, ReplayResult
from perdure.lab.replay.facts import FAR_TOKENS
from perdure.lab.replay.measures import FIRST_HITS, CompactionDetail, SessionMeasures
from perdure.lab.replay.prices import PRICE_SYSTEMS

_COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f", "#475569")
_WIDTH, _HEIGHT, _MARGIN = 860, 300, 56
_LABEL_HEIGHT = 14
_CHAR_WIDTH = 7
# The sessions whose context is drawn, and the compactions that are listed for each policy.
_DRAWN_SESSIONS = 12
_LISTED_COMPACTIONS = 6
_LISTED_MESSAGES = 12
_LISTED_MISSED = 20
_LISTED_FAILURES = 50
_REASON_CHARS = 160
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1e293b;background:#fff}
table{border-collapse:collapse;margin:.5rem 0 1.5rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #e2e8f0;white-space:nowrap}
th{white-space:normal;vertical-align:bottom;line-height:1.25;font-size:.85rem}
th:first-child,td:first-child{text-align:left}.text,td.text{text-align:left;white-space:normal}
code{overflow-wrap:anywhere}
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2rem}h3{font-size:1rem}svg{max-width:100%;height:auto}
.wide{overflow-x:auto}.key{display:inline-block;width:.8em;height:.8em;border-radius:50%;margin:0 .35em 0 1em}
summary{cursor:pointer}small,.note{color:#475569}
@media (prefers-color-scheme:dark){body{background:#0f172a;color:#e2e8f0}th,td{border-color:#334155}
small,.note{color:#94a3b8}svg text{fill:#cbd5e1}}
"""


def render_report(totals: Sequence[PolicyTotals], results: Iterable[ReplayResult], bill: RecordedBill) -> str:
    """Return the report as one HTML page."""
    every = list(results)
    done = sorted((r for r in every if isinstance(r, SessionMeasures)), key=lambda m: (m.session, m.window, m.policy))
    failed = failure_lines(every)
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(dict.fromkeys(t.policy for t in totals))}
    body = [
        "<h1>Context policies, replayed</h1>",
        _introduction(totals, bill),
        *(part for window in sorted({t.window for t in totals}) for part in _window_part(totals, window, colours)),
        *_failure_part(failed),
        *_context_part(done, colours),
        *_compaction_part(done),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Context policies, replayed</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}</body></html>"
    )


def _introduction(totals: Sequence[PolicyTotals], bill: RecordedBill) -> str:
    sessions = max((t.sessions + t.failed + t.left_out for t in totals), default=0)
    failed = sum(t.failed for t in totals)
    facts = max((t.needs for t in totals), default=0)
    recorded = ""
    if bill.calls:
        recorded = (
            f" The provider really billed {count_noun(bill.calls, 'call')}; at Anthropic's list prices that is"
            f" <b>${dollars(bill.cost_usd)}</b>, with the recording agent's own system prompt and tools."
        )
    trouble = (
        f" {count_noun(failed, 'replay')} could not be finished. {escape(coverage_line(totals))}" if failed else ""
    )
    return (
        f"<p>{count_noun(sessions, 'recorded session')} went through the agent once for each policy, with the recorded"
        f" replies and tool results; only what the model was shown differs.{recorded}{trouble}</p>"
        f'<p class="note"><b>In view</b>: of the exact facts (paths, ids, names, numbers) that a call used at least'
        f" {FAR_TOKENS:,} tokens after their last mention ({count_noun(facts, 'fact')} in these sessions), the share"
        " that its prompt still had;"
        " <b>in context</b>: near words that were near them before."
        f" <b>One question away</b>: in view, or in the first {FIRST_HITS} hits of one search in the agent's own words."
        " <b>Avoidable rewrites</b>: calls that lost a live cache without need. Dollars follow from the tokens each"
        " service would have read from its cache, written to it, or billed as new."
        f" {escape(unlimited_line(totals))}</p>"
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
    has_failures = any(t.failed for t in rows)
    heads = [
        "Policy",
        *(("Sessions", "Failed") if has_failures else ()),
        main,
        f"Facts in view, of {max(t.needs for t in rows):,}",
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
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in _row(t, has_failures))}</tr>" for t in rows)
    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def _row(t: PolicyTotals, has_failures: bool) -> Iterator[str]:
    """Yield the table cells of a policy, in the order of the headings."""
    main, *others = PRICE_SYSTEMS
    yield escape(t.policy)
    if has_failures:
        yield f"{t.sessions:,}"
        yield f"{t.failed:,}"
    if not t.sessions:
        yield from ["–"] * (len(PRICE_SYSTEMS) + 12)
        return
    yield f"${dollars(t.cost_usd[main])}"
    yield _share(t.in_view, t.needs)
    yield _share(t.in_view + t.one_question, t.needs)
    yield _share(t.in_context, t.needs)
    yield _share(t.instructions_kept, t.instructions)
    yield f"{t.compactions:,}"
    yield f"{t.rewrites_avoidable:,}"
    yield f"{t.hit_rate:.1%}"
    yield f"{t.mean_tokens:,.0f}"
    yield f"{t.peak_tokens:,}"
    yield from (f"${dollars(t.cost_usd[key])}" for key in others)
    yield f"${dollars(t.summary_cost_usd[main])}"
    yield f"{t.violations:,}"
    yield f"{t.own_s:,.0f} s"


def dollars(amount: float) -> str:
    """Return an amount in US dollars, with four decimals below one dollar."""
    return f"{amount:,.4f}" if 0 < amount < 1 else f"{amount:,.2f}"


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def unlimited_line(totals: Iterable[PolicyTotals]) -> str:
    """Explain why policies without a window appear once; "" if there are none."""
    names = sorted({t.policy for t in totals} & {"none", "recorded"})
    if not names:
        return ""
    noun, have = ("Policies", "have") if len(names) > 1 else ("Policy", "has")
    listed = " and ".join(f"“{name}”" for name in names)
    return f"{noun} {listed} {have} no window limit: replayed once, and listed under the largest window."


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _scatter(rows: Sequence[PolicyTotals], colours: dict[str, str]) -> str:
    """Draw cost against memory as SVG: the best policy is at the top left."""
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
        marks.append(_label(x(value), _HEIGHT - _MARGIN + 18, f"${dollars(value)}", "middle"))
        marks.append(_label(_MARGIN - 8, y(share) + 4, f"{share:.0%}", "end"))
    ordered = sorted(points, key=lambda p: -p[1])
    labels = _place_labels([(x(cost), y(memory), name) for cost, memory, name in ordered])
    for (cost, memory, name), (start, baseline) in zip(ordered, labels, strict=True):
        title = f"{name}: ${dollars(cost)}, {memory:.1%} in view"
        marks.append(
            f'<circle cx="{x(cost):.1f}" cy="{y(memory):.1f}" r="6" fill="{colours[name]}">'
            f"<title>{escape(title)}</title></circle>"
        )
        if abs(baseline - y(memory) - 4) > _LABEL_HEIGHT:
            end = min(max(x(cost), start), start + _CHAR_WIDTH * len(name))
            marks.append(
                f'<path d="M{x(cost):.1f} {y(memory):.1f}L{end:.1f} {baseline - 4:.1f}" stroke="{colours[name]}"'
                ' stroke-opacity=".5"/>'
            )
        marks.append(_label(start, baseline, name, "start"))
    return _svg(marks, "Cost against facts in view, one point for each policy")


_Box = tuple[float, float, float, float]


def _place_labels(points: Sequence[tuple[float, float, str]]) -> list[tuple[float, float]]:
    """Return the start and baseline of each label, clear of points, axes and other labels."""
    boxes: list[_Box] = [(x - 8, y - 8, x + 8, y + 8) for x, y, _ in points]
    positions: list[tuple[float, float]] = []
    for x, y, name in points:
        width = _CHAR_WIDTH * len(name)
        middle = min(max(x - width / 2, _MARGIN + 6), _WIDTH - 6 - width)
        shifts = sorted(range(-_HEIGHT, _HEIGHT), key=abs)[:: _LABEL_HEIGHT // 2]
        candidates = [(start, y + 4 + shift) for shift in shifts for start in (x + 10, x - 10 - width, middle)]
        position = next((c for c in candidates if _is_free(_label_box(*c, width), boxes)), (x + 10, y + 4))
        boxes.append(_label_box(*position, width))
        positions.append(position)
    return positions


def _label_box(start: float, baseline: float, width: float) -> _Box:
    return start, baseline - 10, start + width, baseline + 3


def _is_free(box: _Box, boxes: Iterable[_Box]) -> bool:
    start, top, end, bottom = box
    if start < _MARGIN + 4 or end > _WIDTH - 4 or top < _MARGIN // 2 or bottom > _HEIGHT - _MARGIN - 2:
        return False
    return all(end <= x0 or start >= x1 or bottom <= y0 or top >= y1 for x0, y0, x1, y1 in boxes)


def _failure_part(failed: Sequence[str]) -> Iterator[str]:
    if failed:
        yield "<h2>Replays that failed</h2><ul>"
        yield from (f"<li>{escape(line)}</li>" for line in failed[:_LISTED_FAILURES])
        yield "</ul>"
    if len(failed) > _LISTED_FAILURES:
        yield f'<p class="note">The first {_LISTED_FAILURES} of {len(failed):,} are listed.</p>'


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
    compacted = [m for m in done if m.details or m.missed]
    if not compacted:
        return
    yield "<h2>What was forgotten, and what each compaction did</h2>"
    yield (
        "<p><b>Stayed</b>: in view word for word. <b>Line</b>: quoted by the text that replaced it. <b>Left</b>: not"
        " in view. Every message is still whole in the log of the conversation, under the address given here: the model"
        " opens it with <code>session_search</code>, you with <code>perdure sessions show ID ADDRESS</code>,"
        " once <code>perdure sessions import FILE</code> has read the log into your store and printed the ID it has"
        " there. Tokens are counted as everywhere here, at four bytes each.</p>"
    )
    names = list(dict.fromkeys(m.session for m in compacted))[:_DRAWN_SESSIONS]
    for m in (m for m in compacted if m.session in names):
        title = f"{escape(m.session)} <small>{escape(m.policy)}, window {m.window:,}</small>"
        count = f"{m.compactions:,} compaction{'' if m.compactions == 1 else 's'}"
        missing = count_noun(m.needs - m.in_view, "needed fact")
        yield f"<details><summary>{title}: {count}, {missing} not in view</summary>"
        yield from _render_missed(m)
        for detail in m.details[:_LISTED_COMPACTIONS]:
            yield from _detail(detail, m.context)
        if len(m.details) > _LISTED_COMPACTIONS:
            yield f'<p class="note">The first {_LISTED_COMPACTIONS} of {len(m.details):,} are listed.</p>'
        yield "</details>"


def _render_missed(m: SessionMeasures) -> Iterator[str]:
    """Render the facts that were arguments of a call and missing in its request."""
    if not m.missed:
        return
    items = (
        f"<li>call {row.call:,}: <code>{escape(row.fact)}</code>{' (one question away)' if row.is_found else ''}</li>"
        for row in m.missed[:_LISTED_MISSED]
    )
    yield f"<p>Used by a call, and no longer in its prompt:</p><ul>{''.join(items)}</ul>"
    if m.needs - m.in_view > _LISTED_MISSED:
        yield f'<p class="note">The first {_LISTED_MISSED} of {m.needs - m.in_view:,} are listed.</p>'


def _detail(detail: CompactionDetail, context: Sequence[int]) -> Iterator[str]:
    """Render one compaction, with the sizes of the prompts before and after it, as in the plot."""
    sizes = " → ".join(f"{size:,}" for size in context[max(0, detail.call - 1) : detail.call + 1])
    yield (
        f"<p>Before call {detail.call + 1:,}: prompts of {sizes} tokens."
        f" {count_noun(detail.stayed, 'message')} stayed, {detail.lines:,} became a line, {detail.removed:,} left the"
        f" view; the text in their place has {detail.handoff_chars:,} characters. The largest that are no longer"
        " whole:</p>"
    )
    rows = "".join(
        f"<tr><td>{escape(d.address)}</td><td>{escape(d.role)}</td><td>{d.tokens:,}</td>"
        f'<td>{"line" if d.is_line else "left"}</td><td class="text">{escape(d.excerpt)}</td></tr>'
        for d in detail.dropped[:_LISTED_MESSAGES]
    )
    head = '<th>Address</th><th>Role</th><th>Tokens</th><th>Became</th><th class="text">Begins with</th>'
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
    """Return which session failed under which policies and why, one line for each session and reason."""
    failed = sorted((r for r in results if isinstance(r, FailedReplay)), key=lambda r: (r.session, r.window, r.policy))
    groups: dict[tuple[str, str], list[str]] = {}
    for r in failed:
        groups.setdefault((r.session, r.error), []).append(f"{r.policy} ({r.window:,})")
    return [
        f"{session} under {', '.join(rows)}: {shorten(error, _REASON_CHARS, placeholder=' …')}"
        for (session, error), rows in groups.items()
    ]


def coverage_line(totals: Sequence[PolicyTotals]) -> str:
    """Return which sessions the totals are over, where some replays failed; otherwise nothing."""
    if not any(t.failed for t in totals):
        return ""
    every = max(t.sessions + t.failed + t.left_out for t in totals)
    shared = max(t.sessions for t in totals)
    if not shared:
        return f"None of {every:,} sessions was completed by every policy, so there are no totals."
    empty = sorted({t.policy for t in totals if not t.sessions})
    but = f", apart from {', '.join(empty)}, which completed none" if empty else ""
    return f"All totals are over the {shared:,} of {every:,} sessions that every policy completed{but}."
