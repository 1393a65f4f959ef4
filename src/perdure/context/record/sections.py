"""Write the thirteen sections of a handoff from the state of the task, and merge a model's prose with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.record.task import TaskState


@dataclass(frozen=True, slots=True)
class MergedSections:
    """Sections by name, the texts under a model's own headings, in order, and what code removed or corrected."""

    sections: dict[str, str]
    # (heading, text); rendered as `### heading` at the end of Critical Context by `write_own_headings`.
    others: tuple[tuple[str, str], ...] = ()
    findings: tuple[str, ...] = ()


def write_sections(state: TaskState, *, budget_chars: int | None = None) -> dict[str, str]:
    """Write the sections from the state alone; those without content are left out."""
    return {}


def merge_model_sections(
    summary: str, state: TaskState, *, budget_chars: int | None = None, user_words: Sequence[str] = ()
) -> MergedSections:
    """Merge a model's summary with the state.

    The model writes prose. Code fills the sections it leaves empty, corrects branch, hash, test totals and "pushed"
    where the state proves them, and alone writes Active Task, Constraints & Preferences and Pending User Asks.
    """
    return MergedSections(write_sections(state, budget_chars=budget_chars))
