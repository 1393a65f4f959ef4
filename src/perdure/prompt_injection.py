"""Screen external texts (context files, memory) before they enter a system prompt.

A file that tries to give the model orders over the user's head is left out whole; the finding has the reason. A prompt
that was cleaned in part is still a stranger's prompt. The rows are few and plain on purpose: a false alarm costs a
person their project notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InjectionFinding:
    """The reason why a text is left out of the system prompt, with the words that matched."""

    why: str
    excerpt: str


_VERB = r"(?:ignore|disregard|forget|override|bypass)"
_EARLIER = r"(?:(?:all|any|your|the|my|these|those|of)\s+){0,3}(?:previous|prior|above|earlier|preceding|system|safety)"
_ORDERS = r"(?:instructions?|prompts?|rules?|guidelines?|messages?|directives?)"
_KEY = r"\$\{?\w*(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL)\w*"

_HIDE = r"\b(?:do\s+not|don'?t|never)\s+(?:tell|inform|alert|mention\s+(?:this|it)\s+to)\s+the\s+user\b"
_NEW_SELF = r"\byou\s+are\s+(?:now\s+)?(?:in\s+)?(?:DAN\b|developer\s+mode|jailbroken|unrestricted)"
_ASK_PROMPT = r"\b(?:reveal|print|repeat|output|show)\s+(?:me\s+)?(?:your|the)\s+(?:\w+\s+)?system\s+prompt"
# A flag emoji takes six tag characters at most; hidden text takes more.
_INVISIBLE = "[\u200b\u2060\u2062-\u2064\u202a-\u202e\u2066-\u2069]|[\U000e0000-\U000e007f]{8}"

# why → pattern; each with a sample in the tests.
_ROWS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("tells the model to drop its instructions", re.compile(rf"\b{_VERB}\s+{_EARLIER}\s+{_ORDERS}", re.I)),
    ("tells the model to hide things from the user", re.compile(_HIDE, re.I)),
    ("gives the model a new identity without limits", re.compile(_NEW_SELF, re.I)),
    ("asks for the system prompt", re.compile(_ASK_PROMPT, re.I)),
    ("sends a secret elsewhere", re.compile(rf"\b(?:curl|wget|nc)\b[^\n]{{0,200}}{_KEY}", re.I)),
    ("hides text in invisible characters", re.compile(_INVISIBLE)),
)


def screen(text: str) -> InjectionFinding | None:
    """Return the first sign of prompt injection in `text`, or None."""
    for why, pattern in _ROWS:
        if match := pattern.search(text):
            return InjectionFinding(why, " ".join(match.group(0).split())[:80])
    return None
