"""Some servers leave a model's thinking in its text, between <think> tags: this takes it out, whole or in pieces."""

from __future__ import annotations

from typing import Literal

OPEN, CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """Parts text that opens with <think> into reasoning and answer, as it streams in.

    Only a tag at the very start counts: later ones are text that speaks about tags.
    """

    def __init__(self) -> None:
        self._held = ""
        # Blank pieces before anything was said: kept apart, so that each is looked at once.
        self._blanks: list[str] = []
        # start → text, or start → thinking → gap (blank lines behind the closing tag) → text
        self._state: Literal["start", "thinking", "gap", "text"] = "start"
        self._thoughts: list[str] = []
        self._texts: list[str] = []

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._texts)

    def feed(self, piece: str) -> tuple[str, str]:
        """What the piece adds to (reasoning, answer); what may yet be part of a tag is held back."""
        if self._state == "text":
            self._texts.append(piece)
            return "", piece
        if self._state == "start" and not self._held and (not piece or piece.isspace()):
            self._blanks.append(piece)
            return "", ""
        self._held += piece
        if self._state == "start":
            self._start()
        thought = self._think() if self._state == "thinking" else ""
        return thought, self._answer() if self._state in ("gap", "text") else ""

    def end(self, *, is_cut_off: bool) -> tuple[str, str]:
        """The whole (reasoning, answer). A tag never closed was no thinking, unless the reply was cut off in it."""
        thoughts = "".join(self._thoughts)
        if self._state == "start":
            return "", "".join(self._blanks) + self._held
        if self._state == "thinking":
            thoughts += self._held
            return (thoughts.strip(), "") if is_cut_off else ("", OPEN + thoughts)
        return thoughts.strip(), self.text

    def _start(self) -> None:
        opening = self._held.lstrip()
        if opening.startswith(OPEN):
            self._state, self._held = "thinking", opening[len(OPEN) :]
        elif not OPEN.startswith(opening):
            self._state, self._held = "text", "".join(self._blanks) + self._held

    def _think(self) -> str:
        thought, tag, rest = self._held.partition(CLOSE)
        if tag:
            self._state, self._held = "gap", rest
        else:
            keep = next((n for n in range(len(CLOSE) - 1, 0, -1) if self._held.endswith(CLOSE[:n])), 0)
            thought = self._held[: len(self._held) - keep]
            self._held = self._held[len(thought) :]
        self._thoughts.append(thought)
        return thought

    def _answer(self) -> str:
        text, self._held = self._held, ""
        if self._state == "gap":
            text = text.lstrip()
            if not text:
                return ""
            self._state = "text"
        self._texts.append(text)
        return text
