"""The state of a task in a few rows, as a person reads it (`/context`)."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.task_state.instructions import binding_instructions
from perdure.context.task_state.sections import describe_tests, push_status
from perdure.context.task_state.state import StandingInstruction, TaskState
from perdure.context.text import first_words, tidy


def _count_with_newest(quoted: Sequence[StandingInstruction]) -> str:
    """Return the number of instructions and the beginning of the newest; "" for none."""
    if not quoted:
        return ""
    return f"{len(quoted)}{', the newest' if len(quoted) > 1 else ''}: “{first_words(tidy(quoted[-1].text), 60)}”"


def _describe_refusals(state: TaskState) -> str:
    """Return the number of refused calls and the newest reason of the user; "" for none."""
    reasons = [i.text for i in state.instructions if i.kind == "refusal"]
    newest = f"; the newest reason: “{first_words(tidy(reasons[-1]), 60)}”" if reasons else ""
    count = max(sum(call.outcome == "refused" for call in state.calls), len(reasons))
    return f"{count}{newest}" if count else ""


def describe_state(state: TaskState) -> list[tuple[str, str]]:
    """Return the state in a few rows for people: what it is about, and its value."""
    requests, rules = state.open_requests, [i for i in binding_instructions(state) if i.kind != "refusal"]
    commit = state.commits[-1].commit if state.commits else None
    changed = [f for f in state.files if f.status == "changed"]
    asked = state.pending_question
    done, pending = sum(i.is_done for i in state.plan), [i for i in state.plan if not i.is_done]
    next_item = f", next: {first_words(tidy(pending[0].text), 60)}" if pending else ""
    rows = [
        (
            "open request",
            f"“{first_words(tidy(requests[-1].own_words or requests[-1].text), 80)}”" if requests else "none",
        ),
        ("more open", str(len(requests) - 1) if len(requests) > 1 else ""),
        # Why a request is open although there was a reply.
        ("asked back", f"“{first_words(tidy(asked.value), 80)}”" if requests and asked is not None else ""),
        ("the user's rules", _count_with_newest(sorted(rules, key=lambda i: i.seq))),
        ("refused calls", _describe_refusals(state)),
        ("folder", state.folder.value if state.folder else ""),
        ("branch", state.branch.value if state.branch else ""),
        ("newest commit", f"{commit.hash} {first_words(commit.title, 60)} ({push_status(state)})" if commit else ""),
        ("last tests", describe_tests(state.tests) if state.tests else ""),
        ("running", "; ".join(first_words(p.value, 60) for p in state.processes)),
        ("still fails", "; ".join(first_words(e.text, 80) for e in state.open_errors[-2:])),
        ("files changed", str(len(changed)) if changed else ""),
        ("taken back", str(len(state.files_taken_back) or "")),
        ("plan", f"{done} of {len(state.plan)} done{next_item}" if state.plan else ""),
    ]
    return [(name, value) for name, value in rows if value]
