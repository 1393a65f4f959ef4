"""Talk made by code, in the proportions of real sessions: words by Zipf's law, names, paths, tool output, Chinese."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

from perdure.core.messages import Message, ToolCall, assistant, tool_result, user

_SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprst" for vowel in "aeio"]
_HAN = "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说"


class Corpus:
    """Endless messages from a seed; the same seed says the same."""

    def __init__(self, seed: int = 7, *, words: int = 30_000) -> None:
        self._chance = random.Random(seed)
        chance = self._chance
        made: dict[str, None] = {}
        while len(made) < words:
            made["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 4)))] = None
        self.words = list(made)
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(words)))
        pick = chance.choice
        self.identifiers = [f"{pick(self.words)}_{pick(self.words)}" for _ in range(4_000)]
        self.paths = [
            f"src/{pick(self.words[:300])}/{pick(self.words[:900])}/{pick(self.identifiers)}.py" for _ in range(4_000)
        ]
        self.han = ["".join(chance.choices(_HAN, k=2)) for _ in range(2_000)]

    def sentence(self, words: int) -> str:
        return " ".join(self._chance.choices(self.words, cum_weights=self._weights, k=words))

    def question(self, chance: random.Random) -> str:
        """Return a question with four words that mean something, one of them common."""
        one, two, three = chance.sample(self.words[100:3_000], 3)
        return f"what did we decide about the {chance.choice(self.words[:400])} of {one} and {two} {three}?"

    def text(self, words: int) -> str:
        """Words, with a name or a path now and then; one text in twelve is Chinese."""
        chance = self._chance
        if chance.random() < 1 / 12:
            return "，".join("".join(chance.choices(self.han, k=4)) for _ in range(max(1, words // 6)))
        pieces = [self.sentence(words)]
        pieces += chance.choices(self.identifiers, k=1 + words // 40)
        pieces += chance.choices(self.paths, k=1 + words // 60)
        return " ".join(pieces)

    def messages(self, *, words: int) -> Iterator[Message]:
        """Questions, calls, results and answers; results are the longest."""
        number = 0
        while True:
            number += 1
            call = ToolCall(f"call_{number}", "terminal", f'{{"command":"cat {self._chance.choice(self.paths)}"}}')
            yield user(self.text(max(3, words // 3)))
            yield assistant(self.text(max(3, words // 4)), (call,))
            yield tool_result(call.id, self.text(words * 2), "terminal")
            yield assistant(self.text(words))
