"""Commands about the context and its cost: `/compress`, `/context`, `/usage`, `/insights` and `/model`."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from perdure.agent.context_usage import ContextUsage
from perdure.app.model_choices import ModelChoice
from perdure.app.runtime import NOT_CHOSEN, SCRIPTED_KEY, describe_choices
from perdure.commands.command import Command, CommandContext, CommandResult, Level
from perdure.commands.format import (
    bar,
    count,
    gauge_line,
    measure_usage,
    money,
    share,
    short_tokens,
    tokens,
    total_cost,
    usage_lines,
)
from perdure.config.load import load
from perdure.config.settings import Settings
from perdure.context.engine import HANDOFF_NOT_REWRITTEN, CompactionReport
from perdure.context.notebook import NotebookLog
from perdure.context.registry import WINDOWS_ENGINE
from perdure.core.concurrency import SystemClock
from perdure.core.errors import ConfigError, NotFound
from perdure.core.visibility import Visibility
from perdure.models.catalog import Catalog, is_subscription
from perdure.store.records import Grouping, Span, Totals, UsageRow
from perdure.store.store import SessionStore

_HEADLINES = {
    "compacted": "Compacted.",
    "digest": "Compacted without a model: the handoff is a digest written by code.",
    "nothing_to_do": "Nothing to compact.",
    "failed": "The compaction failed; nothing has changed.",
}
_SUMMARY_ADVICE = (
    "/model chooses another model, which writes summaries, too;"
    " `perdure config set compression.summarize false` has later handoffs written by code."
)


def compress(surface: CommandContext, argument: str) -> CommandResult:
    session_id = surface.agent.session_id
    if session_id is None:
        return CommandResult("Nothing to compact: nothing has been said yet.")
    messages_before = len(surface.store.history(session_id).entries)
    report = surface.agent.compress(argument or None)
    is_done = report.outcome in ("compacted", "nothing_to_do") and not report.message.startswith(HANDOFF_NOT_REWRITTEN)
    level: Level = "info" if is_done else "warning"
    return CommandResult("\n".join(_lines(report, messages_before)), level)


def _lines(report: CompactionReport, messages_before: int) -> list[str]:
    if report.outcome == "nothing_to_do" and report.message:
        advice = [_SUMMARY_ADVICE] if report.message.startswith(HANDOFF_NOT_REWRITTEN) else []
        return [report.message, *advice, *report.notices]
    # It says who wrote the handoff, or why no model did.
    has_headline = report.outcome in ("compacted", "digest") and report.message.startswith("Compacted")
    lines = [report.message if has_headline else _HEADLINES[report.outcome]]
    if report.outcome in ("compacted", "digest"):
        before, after = report.before_tokens, report.after_tokens
        whole = max(before, after)
        # Equally long, so that bars which give way to a narrow terminal stay comparable.
        counts = [count(n, "message") for n in (messages_before, len(report.messages))]
        counts = [text.ljust(max(map(len, counts))) for text in counts]
        lines += [
            f"before {bar(before, whole)} {tokens(before):>9} tokens in {counts[0]}",
            f"after  {bar(after, whole)} {tokens(after):>9} tokens in {counts[1]}",
            "Nothing is lost: /handoff shows what the model reads now, /expand what it stands for; /undo compaction"
            " takes it back.",
        ]
    if report.message and not has_headline:
        lines.append(report.message)
    return [*lines, *report.notices]


COMPRESS = Command(
    "compress", "/compress [focus]", "compact now; a topic named here stays in detail", compress, ("compact",)
)


# As they lie in a request, first to last; a part that is empty is shown too, so that one sees what could be there.
_NAMES = {
    "system": "system",
    "tools": "tools",
    "memory": "memory",
    "head": "head",
    "handoff": "handoff",
    "tail": "tail",
    "outputs": "tool outputs",
}

_CELLS = 24
_MOST_WINDOWS = 8
# The state is read from so many messages at most.
_MOST_MESSAGES = 10_000


def context(surface: CommandContext, argument: str) -> CommandResult:
    gauge = measure_usage(surface.agent)
    whole = gauge.window or gauge.tokens or 1
    rows = [(name, gauge.composition.get(part, 0)) for part, name in _NAMES.items()]
    lines = [f"{name:<12} {bar(n, whole, width=_CELLS)} {tokens(n):>9} {share(n / whole):>4}" for name, n in rows]
    free = max(0, whole - gauge.tokens)
    lines.append(f"{'free':<12} {' ' * _CELLS} {tokens(free):>9} {share(free / whole):>4}")
    if surface.agent.session_id is not None:
        lines.append("The parts are estimates, fitted to the total.")
    for part in (_timing_lines, _deferred_lines, _source_lines, _window_lines, _task_lines):
        lines += part(surface)
    return CommandResult("\n".join([gauge_line(gauge), "", *lines]))


def _timing_lines(surface: CommandContext) -> list[str]:
    """Return lines on why the next message would be compacted, or why not yet; none before the first message."""
    agent = surface.agent
    if not agent.deps.settings.compression.enabled:
        return ["", f"{'compaction':<12} off (compression.enabled); /compress works"]
    is_measured = agent.session_id is not None and not agent.has_open_model
    decision = agent.open().gate.cost.explain() if is_measured else None
    if decision is None:
        return []
    when = "with the next message" if decision.action == "compact" else "not due"
    rule = agent.open().gate.cost.describe()
    return ["", f"{'compaction':<12} {when}: {decision.reason}", *([f"{'':<12} {rule}"] if rule else [])]


def _deferred_lines(surface: CommandContext) -> list[str]:
    """Return lines on the tokens saved by tools whose schemas are not sent; none if all are sent."""
    tools = surface.agent.deps.tools
    size = tools.deferred.size(tools.registry) if tools.deferred is not None else None
    if size is None:
        return []
    saved = tokens(size.whole_tokens - size.sent_tokens)
    listed = f"{count(size.tools, 'tool')} listed in {tokens(size.sent_tokens)} tokens, found by need"
    return ["", f"{'tools':<12} {listed}: saves {saved} tokens in every request"]


def _window_lines(surface: CommandContext) -> list[str]:
    """Return lines on the notebook and windows of the window engine; none with other engines."""
    session_id = surface.agent.session_id
    if session_id is None or surface.agent.deps.engine.name != WINDOWS_ENGINE:
        return []
    windows = surface.store.addresses.windows(session_id)
    notebook = NotebookLog.read(surface.store.history(session_id).entries).notebook
    addresses = [f"w:{n} m:{lo}-{hi}" for n, (lo, hi) in enumerate(windows, start=1)]
    if len(addresses) > _MOST_WINDOWS:
        addresses[1 : 2 - _MOST_WINDOWS] = ["…"]
    size = f"{notebook.size:,} bytes" if notebook.sections else "empty"
    return [
        "",
        f"{'windows':<12} {', '.join(addresses)}",
        f"{'notebook':<12} {size}",
        *(f"  {n}" for n in notebook.text.splitlines()),
    ]


def _source_lines(surface: CommandContext) -> list[str]:
    """Return lines on the files that instructions, skills, memory, commands and settings are read from."""
    listed = list(surface.sources())
    if not listed:
        return []
    deps = surface.agent.deps
    memory = deps.memory.snapshot(deps.user.stored_key)
    prompt = deps.prompt_sources(memory)
    files = [f"{f.name} ({f.left_out or count(len(f.text), 'character')})" for f in prompt.context_files]
    skills = [skill.name for skill in prompt.skills]
    sizes = (("MEMORY.md", memory.memory), ("USER.md", memory.user))
    remembered = [f"{name} ({count(len(text), 'character')})" for name, text in sizes if text]
    rows = [("instructions", ", ".join(files)), ("skills", ", ".join(skills)), ("memory", ", ".join(remembered))]
    return ["", *(f"{label:<12} {text or 'none'}" for label, text in [*rows, *listed])]


def _task_lines(surface: CommandContext) -> list[str]:
    """Return lines on the task state that the next handoff would have; none before the first message."""
    session_id = surface.agent.session_id
    if session_id is None:
        return []
    last = surface.store.conversations.get(session_id, visibility=surface.visibility).last_seq
    entries = surface.store.log.read(session_id, Span(max(1, last - _MOST_MESSAGES), last)) if last else []
    # Slow to import: no other command needs them.
    from perdure.context.record.record import call_lines
    from perdure.context.task_state.overview import describe_state
    from perdure.context.task_state.reader import read_state

    state = read_state(entries, call_lines(entries))
    return ["", *(f"{name + ':':<18} {value}" for name, value in describe_state(state))] if state.requests else []


CONTEXT = Command("context", "/context", "what fills the window, and where the task is", context, ("status",))


_DAY_MS = 86_400_000
_GROUPS: tuple[Grouping, ...] = ("day", "model", "source", "task")
MOST_DAYS = 36_500
_MOST_CHOICES = 40
_NAME_CELLS = 36
# Models whose missing price is named.
_MOST_PRICES = 3
NOTHING_YET = "Nothing has been said yet."


def usage(surface: CommandContext, argument: str) -> CommandResult:
    """Show the usage of this conversation: tokens by class, cost, cache, context usage, compactions."""
    session_id = surface.agent.session_id
    if session_id is None:
        return CommandResult(NOTHING_YET)
    lines = conversation_lines(surface.store, session_id, surface.agent.deps.settings)
    return CommandResult("\n".join([*lines, "", gauge_line(measure_usage(surface.agent))]))


def billed_totals(store: SessionStore, any_id: str) -> tuple[Totals, float]:
    """Return the totals of a conversation without the calls of a script in a model's place, and their cost."""
    totals = store.ledger.totals(any_id)
    scripted = store.conversation_state(any_id).get(SCRIPTED_KEY)
    # A branch has the state of its parent, and not its calls.
    usd = scripted.get(store.conversations.get(any_id).id) if isinstance(scripted, dict) else None
    if not isinstance(usd, float) or totals.cost_usd is None:
        return totals, 0.0
    return replace(totals, cost_usd=max(0.0, totals.cost_usd - usd)), usd


def conversation_lines(store: SessionStore, any_id: str, settings: Settings) -> list[str]:
    """Format the totals of a conversation: tokens by class, cost by task, cache hit rate, calls and compactions.

    Of a branch, what was spent before it is told apart; what the cost leaves out comes last.
    """
    (totals, scripted_usd), before = billed_totals(store, any_id), store.ledger.totals_before_branch(any_id)
    scripted = [f"{'not billed':<18} {money(scripted_usd):>12}  by a script in a model's place"] if scripted_usd else []
    undone = f", {totals.undone_compactions:,} undone" if totals.undone_compactions else ""
    earlier = [f"{'before the branch':<18} {total_cost(before):>12}"] if before is not None else []
    return [
        *usage_lines(totals.usage),
        f"{'cost':<18} {total_cost(totals):>12}",
        *scripted,
        *_task_cost_lines(store.ledger.totals_by_task(any_id)),
        *earlier,
        f"{'cache hit rate':<18} {share(totals.usage.cache_hit_rate):>12}",
        f"{'model calls':<18} {totals.calls:>12}",
        f"{'compactions':<18} {totals.compactions:>12}{undone}{', since the branch' if earlier else ''}",
        *unpriced_lines(store, any_id, settings),
    ]


_TASK_NAMES = {"main": "answers", "compression": "handoffs"}


def _task_cost_lines(rows: Sequence[UsageRow]) -> Iterator[str]:
    """Yield what each task cost; none where there were only answers."""
    if all(row.group == "main" for row in rows):
        return
    for row in rows:
        name = _TASK_NAMES.get(row.group, row.group.replace("_", " "))
        advance = ", also in advance" if row.group == "compression" else ""
        yield f"  {name:<16} {total_cost(row.totals):>12}  {count(row.totals.calls, 'call')}{advance}"


def unpriced_lines(store: SessionStore, any_id: str, settings: Settings) -> list[str]:
    """Return lines on the calls that the figures of a conversation leave out, as the prices are now."""
    models = store.ledger.unpriced_models(any_id)
    overrides = list(settings.model_overrides)
    if models:
        with contextlib.suppress(ConfigError):  # a price may have been set since this process began
            overrides += load().settings.model_overrides
    catalog = Catalog(overrides)
    priced = {m for provider, m in models if catalog.facts(provider, m).prices.input_per_mtok is not None}
    return left_out_lines(store.ledger.totals(any_id), models, priced)


def left_out_lines(
    totals: Totals, unpriced_models: Sequence[tuple[str, str]] = (), priced_by_now: Collection[str] = ()
) -> list[str]:
    """Return lines on the calls that the tokens or the cost leave out, with the command that sets a missing price."""
    lines = []
    if totals.unreported_calls:
        about = tokens(totals.unreported_estimate_tokens)
        lines.append(f"{count(totals.unreported_calls, 'call')} ended unreported, about {about} tokens")
    # A call without token counts has no cost either, whatever its price.
    if (unpriced := totals.unpriced_calls - totals.unreported_calls) > 0:
        models = dict.fromkeys(model for provider, model in unpriced_models if not is_subscription(provider))
        priceable = [model for model in models if model not in priced_by_now]
        how = "; in dollars for a million tokens, in and out:" if priceable else ""
        what = f"no price known for {count(unpriced, 'call')}"
        if models and not priceable:
            what = f"a price is set by now, from the next start on; the cost is without {count(unpriced, 'call')}"
        lines.append(f"{'+: ' if total_cost(totals).endswith('+') else ''}{what}{how}")
        lines += [f"  `{price_command(model)}`" for model in priceable[:_MOST_PRICES]]
    return lines


def price_command(model: str) -> str:
    """Return the command that sets the price of a model."""
    return f"perdure models price {shlex.quote(model)} IN OUT"


def insights(surface: CommandContext, argument: str) -> CommandResult:
    """Show usage and cost of all visible conversations in the last days, by day, model, surface and task."""
    if argument and not (argument.isdecimal() and 0 < int(argument) <= MOST_DAYS):
        return CommandResult("/insights takes a number of days, e.g. /insights 7", "error")
    return CommandResult(insights_text(surface.store, int(argument or 30), visibility=surface.visibility))


def insights_text(store: SessionStore, days: int, *, visibility: Visibility) -> str:
    """Return the tables of `/insights` for the last days, limited to what `visibility` covers."""
    by_group = usage_by_group(store, days, visibility=visibility)
    parts = [f"by {group}\n{_table(rows)}" for group, rows in by_group.items() if rows]
    return (
        "\n\n".join([f"The last {days} days, in tokens (cached and written: by the prompt cache)", *parts])
        if parts
        else f"Nothing in the last {days} days."
    )


def usage_by_group(store: SessionStore, days: int, *, visibility: Visibility) -> dict[str, list[UsageRow]]:
    """Return the usage of the last days by day, model, surface and task."""
    since_ms = SystemClock().now_ms() - days * _DAY_MS
    return {group: store.ledger.usage(group, since_ms=since_ms, visibility=visibility) for group in _GROUPS}


_NAME_CHARS = 15


def _table(rows: list[UsageRow]) -> str:
    """Format usage rows in columns of at most sixty characters, so that a narrow terminal does not wrap them."""
    head = " ".join(f"{name:>7}" for name in ("fresh", "cached", "written", "output"))
    lines = [f"  {'':<{_NAME_CHARS}} {head} {'cost':>9}"]
    for row in rows:
        used = row.totals.usage
        figures = (used.input_tokens, used.cache_read_tokens, used.cache_write_tokens, used.output_tokens)
        name = row.group or "–"
        if len(name) > _NAME_CHARS:
            # On a line of its own: a cut name may be that of another model, too.
            lines.append(f"  {name}")
            name = ""
        columns = " ".join(f"{short_tokens(n):>7}" for n in figures)
        lines.append(f"  {name:<{_NAME_CHARS}} {columns} {total_cost(row.totals):>9}")
    return "\n".join(lines)


USAGE = Command("usage", "/usage", "tokens, cost and cache of this conversation", usage, ("cost",))
INSIGHTS = Command("insights", "/insights [days]", "totals by day, model, surface and task", insights)


def model(surface: CommandContext, argument: str) -> CommandResult:
    """List the models, or switch to one: by name, by `provider/name`, or by its number in the list."""
    if argument:
        chosen = surface.choose_model(_named_model(surface, argument))
        gauge = measure_usage(surface.agent)  # so that the status line shows the new model's window at once
        return CommandResult(f"Going on with {chosen}.{window_notice(surface, gauge)}")
    choices = surface.model_choices()
    if surface.agent.endpoint.model == NOT_CHOSEN and not choices:
        return CommandResult(describe_choices(surface.agent.endpoint))
    gauge = measure_usage(surface.agent)
    lines = [gauge.model, gauge_line(gauge)]
    if choices:
        visible = choices[:_MOST_CHOICES]
        lines += ["", *(f"{n:>3} {model_line(choice)}" for n, choice in enumerate(visible, 1)), ""]
        more = f" {len(choices) - len(visible)} more are completed with Tab." if len(choices) > len(visible) else ""
        lines.append(f"Go on with one: /model NUMBER or /model NAME.{more}")
        lines.append("Prices are US dollars for a million tokens, in and out.")
    return CommandResult("\n".join(lines))


def window_notice(surface: CommandContext, gauge: ContextUsage) -> str:
    """Return a sentence where the conversation is larger than the chosen model's window allows; else ""."""
    if surface.agent.session_id is None or gauge.threshold is None or gauge.tokens <= gauge.threshold:
        return ""
    size = f"{tokens(gauge.tokens)} tokens, above the {tokens(gauge.threshold)} at which this model's window compacts"
    return f" The conversation has {size}: the next message compacts it."


def _named_model(surface: CommandContext, argument: str) -> str:
    """Resolve a number of the model list to its name; any other argument is a name. Raises NotFound."""
    if not argument.isdecimal():
        return argument
    choices = surface.model_choices()
    if not 1 <= int(argument) <= len(choices):
        raise NotFound(f"/model has no number {argument}; it lists {len(choices)}")
    return choices[int(argument) - 1].name


def model_line(choice: ModelChoice) -> str:
    """Format a row of the model list: `anthropic/claude-sonnet-5-5 200,000 $3.00/$15.00 anthropic`."""
    name = choice.name if len(choice.name) <= _NAME_CELLS else f"…{choice.name[-_NAME_CELLS + 1 :]}"
    return f"{name:<{_NAME_CELLS}} {describe_model(choice)}"


def describe_model(choice: ModelChoice, *, is_in_use: bool = False) -> str:
    """Format window, prices and source of a model in columns."""
    window = tokens(choice.window) if choice.window else "?"
    notes = ("in use" if is_in_use else "", "default" if choice.is_default else "", choice.source)
    return f"{window:>10} {_price(choice):>16}  {', '.join(filter(None, notes))}".rstrip()


def describe_origin(choice: ModelChoice) -> str:
    """Format where a model runs, unless its name includes that."""
    source = choice.source if choice.source not in choice.name else ""
    return ", ".join(filter(None, ("default" if choice.is_default else "", source)))


def _price(choice: ModelChoice) -> str:
    if choice.input_per_mtok is None or choice.output_per_mtok is None:
        return ""
    if not choice.input_per_mtok and not choice.output_per_mtok:
        return "free"
    return f"${choice.input_per_mtok:,.2f}/${choice.output_per_mtok:,.2f}"


def stop(surface: CommandContext, argument: str) -> CommandResult:
    return CommandResult("Stopped." if surface.agent.interrupt() else "Nothing is going on.")


def leave(surface: CommandContext, argument: str) -> CommandResult:
    return CommandResult("", is_leaving=True)


MODEL = Command("model", "/model [name|number]", "list models with windows and prices, or go on with another", model)
STOP = Command("stop", "/stop", "stop the turn under way", stop)
QUIT = Command("quit", "/quit", "leave; the conversation is kept", leave, ("exit",))
