"""Labelled user messages: texts of many genres that users paste, and rules that they type themselves.

The samples lie in `data/`: a line `%%% genre` begins each. In the rules, ⟦ ⟧ marks the sentences that bind. The genres
of `pasted_texts.txt` and `typed_rules.txt` come in two halves: the patterns were tuned on the samples of one and
measured on the other. `unseen_pastes.txt` and `unseen_rules.txt` were written last and measured before any mending.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DATA = Path(__file__).parent / "data"
_MARKED = re.compile("⟦(.*?)⟧", re.DOTALL)

# How users hand a text over; the first is the text with nothing around it.
PASTE_FRAMES = (
    "{}",
    "What do you make of this?\n\n{}",
    "{}\n\nIs that normal?",
    "Can you summarise this for me:\n\n{}",
    "{}\n\nTranslate to Spanish please",
    "here's what I got today\n\n{}",
    "{}\n\nthoughts?",
    "Please proofread the following text.\n\n{}",
    "I found this online:\n{}",
    "{}\n\nWhat does the second sentence mean?",
    "fix the spelling\n\n{}",
    "Found this in an old folder, who could have written it?\n\n{}",
    "explain: {}",
    "这段话是什么意思？\n\n{}",
)
UNSEEN_PASTE_FRAMES = (
    "{}",
    "Does this make sense?\n\n{}",
    "{}\n\nwhat should I do now",
    "My neighbour gave me this, what is it about?\n\n{}",
    "{}\n\nrewrite it in a friendlier tone",
    "someone sent me this:\n\n{}",
    "tl;dr\n\n{}",
    "{}\n\nHow would you answer?",
    "Take a look at this\n\n{}",
    "Übersetze das bitte:\n\n{}",
    "{}\n\nWho is right here?",
    "Is there anything important in here?\n\n{}",
)
# Without a frame, these cannot be told from a user's own directions.
_NEVER_BARE = {"prompt for another model", "contributing guide"}
_FRAME_INSTEAD = "Improve this text:\n\n{}"

# Where users put a rule beside other text.
RULE_FRAMES = (
    "Please fix the failing test in parser.py.\n{}",
    "Why does this fail?\n```\nraise ValueError('never call this')\n```\n{}",
    "> we should always meet on Mondays\n\nTell her yes. {}",
    "{}\n\nSummarise this article:\n\nThe harbour was dredged in 1998. Ships must always wait outside. It was cold.",
    "{}\n\nWhat is next?",
    "From: Ina Holm <ina@holm.example>\nTo: me\nSubject: Keys\n\nHi, never leave the keys at the desk again.\n"
    "Ina\n\nWrite a short reply. {}",
)
_FRAMED_GENRES = {"short", "polite", "preference", "conditional", "other work", "with a reason", "german", "chinese"}


@dataclass(frozen=True, slots=True)
class PasteSample:
    """A message whose pasted part must bind nobody."""

    genre: str
    body: str
    message: str


@dataclass(frozen=True, slots=True)
class RuleSample:
    """A message with the sentences of it that bind, word for word."""

    genre: str
    rules: tuple[str, ...]
    message: str


@cache
def paste_samples() -> tuple[PasteSample, ...]:
    """Every text in two or three frames."""
    return (
        *_framed("pasted_texts.txt", PASTE_FRAMES, (0, 1)),
        *_framed("unseen_pastes.txt", UNSEEN_PASTE_FRAMES, (0, 1, 5)),
    )


@cache
def rule_samples() -> tuple[RuleSample, ...]:
    """Every rule as it was typed, and many of them beside other text."""
    first, later = _typed("typed_rules.txt"), _typed("unseen_rules.txt")
    framed = [s for s in first if s.genre in _FRAMED_GENRES and len(s.rules) == 1]
    return (*first, *_beside(framed), *later, *_beside([s for s in later if "\n" not in s.message]))


def captions() -> list[str]:
    """Return short paragraphs above or below a pasted text, which stands at {}."""
    return [text for _, text in _read("captions.txt")]


def own_openings() -> list[str]:
    """Return messages that begin with a paragraph of the user's and lay something down in the next one."""
    return [text for _, text in _read("own_openings.txt")]


def held_out(genres: Sequence[str]) -> frozenset[str]:
    """Return every second genre, in the order in which they appear."""
    return frozenset(list(dict.fromkeys(genres))[1::2])


def _framed(name: str, frames: Sequence[str], offsets: Sequence[int]) -> Iterator[PasteSample]:
    for n, (genre, body) in enumerate(_read(name)):
        for offset in offsets:
            frame = frames[(2 * n + offset) % len(frames)]
            if frame == "{}" and genre in _NEVER_BARE:
                frame = _FRAME_INSTEAD
            yield PasteSample(genre, body, frame.replace("{}", body))


def _typed(name: str) -> list[RuleSample]:
    return [RuleSample(genre, tuple(_MARKED.findall(text)), _MARKED.sub(r"\1", text)) for genre, text in _read(name)]


def _beside(samples: Sequence[RuleSample]) -> Iterator[RuleSample]:
    for n, sample in enumerate(samples):
        message = RULE_FRAMES[n % len(RULE_FRAMES)].format(sample.message)
        yield RuleSample(sample.genre, sample.rules, message)


def _read(name: str) -> Iterator[tuple[str, str]]:
    for sample in (_DATA / name).read_text("utf-8").split("%%% ")[1:]:
        genre, _, text = sample.partition("\n")
        yield genre, text.rstrip("\n")
