"""Calls that keep a plan, a list of tasks, or ask the user a question."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from perdure.context.tool_calls.call_line import NO_FACTS, CallFacts, CallKind, CallLine
from perdure.context.tool_calls.compose import arguments_text, compose_line, target_of
from perdure.context.tool_calls.output import (
    MAX_REPORT_CHARS,
    CallFinding,
    join_rows,
    one_line,
    plain_text,
    printable,
)

_QUESTION_TOOLS = frozenset(("askuserquestion", "ask_user", "clarify", "ask_clarification", "ask_followup_question"))


def asks_user(name: str) -> bool:
    """Return whether a tool asks the user a question."""
    return name.lower() in _QUESTION_TOOLS


def describe_question(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    """Describe a question to the user, with the answer."""
    questions = arguments.get("questions")
    first = questions[0] if isinstance(questions, list) and questions else arguments
    question = first.get("question") or first.get("prompt") if isinstance(first, dict) else str(first)
    answer = printable(result[:4_000]).strip()
    finding = CallFinding(f"the user answered: {one_line(answer, 600)}", worth=0.9)
    what = f"asked the user “{one_line(str(question or ''), 160)}”"
    return compose_line(name, kind, one_line(str(question or ""), 160), what, finding, "ok")


def describe_task(name: str, kind: CallKind, arguments: Mapping[str, Any], result: str) -> CallLine:
    """Describe a plan, a list of steps, or one task of it."""
    items = next(
        (v for k in ("todos", "items", "plan", "tasks", "steps") if isinstance(v := arguments.get(k), list)), None
    )
    if items is not None:
        return _describe_plan(name, items)
    subject = arguments.get("subject") or arguments.get("title")
    if isinstance(subject, str) and "create" in name.lower():
        number = re.search(r"#(\w+)", result[:200])
        label = f"task {number[1]}: {subject}" if number is not None else f"task: {subject}"
        description = arguments.get("description")
        rows = (one_line(description, 500),) if isinstance(description, str) else ()
        finding = CallFinding("", rows, CallFacts(created=(label,)), False, 0.45)
        return compose_line(name, kind, subject, f"created {label}", finding, "ok")
    plan = arguments.get("plan")
    if isinstance(plan, str):
        steps = join_rows(plan.split("\n"), limit=1_000)
        finding = CallFinding(one_line(result, 80), tuple(steps), NO_FACTS, False, 0.7)
        target = f"plan → {one_line(result, 60)}"
        composed = compose_line(name, kind, target, f"plan: {one_line(plan.lstrip('# '), 90)}", finding, "ok")
        return replace(composed, report=plan[:MAX_REPORT_CHARS])
    finding = CallFinding(
        one_line(result, 110),
        tuple(join_rows(plain_text(result[:4_000]).split("\n"), limit=600)),
        NO_FACTS,
        False,
        0.25,
    )
    if "taskId" in arguments:
        changes = arguments_text({k: v for k, v in arguments.items() if k != "taskId"}, 300)
        task = str(arguments["taskId"])
        return compose_line(name, kind, task, f"task {one_line(task, 40)}", CallFinding(changes, worth=0.1), "ok")
    return compose_line(
        name, kind, target_of(kind, arguments), f"{name} {arguments_text(arguments, 120)}".rstrip(), finding, "ok"
    )


def _describe_plan(name: str, items: list[Any]) -> CallLine:
    plan: list[tuple[str, bool]] = []
    rows: list[str] = []
    active = ""
    for item in items[:60]:
        if isinstance(item, dict):
            text = next(
                (
                    v
                    for k in ("content", "text", "step", "title", "subject", "task", "description")
                    if isinstance(v := item.get(k), str)
                ),
                "",
            )
            status = str(item.get("status", ""))
        else:
            text, status = str(item), ""
        if not text:
            continue
        is_done = status in ("completed", "done", "complete", "finished", "cancelled")
        plan.append((text, is_done))
        if status in ("in_progress", "active", "in-progress"):
            active = active or text
        rows.append(f"[{'x' if is_done else '>' if text == active else ' '}] {one_line(text, 160)}")
    finished = sum(is_done for _, is_done in plan)
    now = f", now: {active}" if active else ""
    finding = CallFinding(f"{finished} of {len(plan)} done{now}", tuple(rows), CallFacts(plan=tuple(plan)), False, 0.3)
    return compose_line(name, "task", active or "plan", "plan", finding, "ok")
