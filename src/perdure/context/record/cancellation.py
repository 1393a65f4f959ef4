"""Recognize that the user takes back a request by naming it: "forget about the mailer", "the export is off the table".

A bare "never mind" closes every open request (`RequestLog`). A message that names a task closes the requests about it.
It remains a request itself, because the same words may ask for work: "cancel the reservation".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST_CHARS = 240
_OPENING = (
    r"^\W*(?:(?:ok(?:ay)?|no|wait|hm+|sorry|please|ah|oh|actually|hey|well|also|and|so|yeah|on second thoughts?|btw"
    r"|by the way|for now|right|alright|hi|doch|bitte|ach|(?:please )?stop(?: it| that| here)?|never ?mind|scratch that"
    r"|(?:forget|cancel|drop|leave|skip) (?:it|that|this))[,.;:! –—-]+)*"
)
# Words that can only take something back.
_TAKES_BACK = (
    r"(?:you can |let'?s |just |please |better )*(?:forget(?: about)?|never ?mind(?: about)?|don'?t bother(?: with)?)"
    r"|(?:there'?s |there is )?no (?:more |longer a )?need (?:for|to)"
    r"(?: (?:continue|go on|start|proceed|do|finish)(?: with| on)?)?"
    r"|not needed any ?more:?"
    r"|(?:please )?(?:don'?t|do not)(?: (?:do|start|continue|go on|proceed|go ahead|work|carry on)(?: with| on)?)"
    r"|let'?s not(?: do)?|(?:let'?s )?hold off (?:on|with)|(?:let'?s )?call off"
    r"|we(?:'ve| have)? (?:just )?(?:decided (?:against|not to(?: do)?)|changed our minds? (?:about|on))"
    r"|(?:i|we)(?:'m| am|'re| are)? (?:don'?t|do not|no longer|won'?t|not going to)(?: (?:need|want|do))+"
    r"|(?:you|we) (?:don'?t|do not|needn'?t|no longer) (?:have to|need to|have)?(?: do)?"
    r"|i(?:'ve| have)? changed my mind (?:about|on)|i take back|(?:let'?s )?abandon"
    r"|vergiss|streich(?:e|t)?|lass(?: uns)?(?: das)?(?: mit)?|laisse tomber|oublie|annule|olvida"
    r"|olvídate de|забудь про"
)
# Words that may as well ask for work: a flight is cancelled, a table dropped, a server stopped.
_MAY_TAKE_BACK = (
    r"(?:please |let'?s |just |you can |better )*(?:cancel|drop|stop(?: (?:working on|with|doing))?|skip|scrap|ditch"
    r"|kill|leave out|leave(?=.*\b(?:cancell?ed|no longer|not needed))|put aside|shelve)"
)
_END = r"(?P<what>[^\n.!?;,:–—]{2,90})"
_OVER = (
    r"(?:off the table|off the list|cancell?ed|called off|no longer (?:needed|necessary|wanted|required|relevant)"
    r"|not (?:needed|necessary|required|wanted|relevant)(?: any ?more| now)?|obsolete|moot|dropped|dead|history"
    r"|vom tisch|nicht mehr nötig|erledigt)"
)
_CLEAR = re.compile(rf"{_OPENING}(?:{_TAKES_BACK})\s+{_END}", re.IGNORECASE)
_PASSIVE = re.compile(
    rf"{_OPENING}(?P<what>[^\n.!?;,:–—]{{2,90}}?)\s*(?:'s| is| are| was| were| has been| have been| hat sich| ist)"
    rf"(?: been| now| all| actually)*\s+{_OVER}\b",
    re.IGNORECASE,
)
_UNCLEAR = re.compile(rf"{_OPENING}(?:{_MAY_TAKE_BACK})\s+{_END}", re.IGNORECASE)
_REASON = re.compile(rf"\b{_OVER}\b|\b(?:don'?t|no longer) need\b|\bchanged my mind\b", re.IGNORECASE)

_WORD = re.compile(r"[^\W_]{3,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_COMMON = frozenset(
    """the and for that this with from into about all any please could would can you your our after more anymore now
    then job task thing work part request idea plan it's its whole entire doing making need want needed just also too
    alone out aside entirely completely altogether continue anyway today der die das den dem ein eine mit und""".split()  # noqa: SIM905  # a list of words reads better
)
_PREPOSITION = re.compile(r"\b(?:for|of|in|to|with|from|on|at|by|about|für|von|mit)\b", re.IGNORECASE)
# What is put off or narrowed down is not taken back.
_LIMITS = re.compile(
    r"\b(?:only|but|except|unless|until|yet|first|before|instead|while|when|if|nur|aber|bis|erst)\b", re.IGNORECASE
)
# Words are compared by their beginning: "migrate" and "migration" name the same thing.
_STEM_CHARS = 5
_LEAST_SHARE = 0.5
_JOINED = re.compile(r"\b(?:and|then|und|et|y)\b|[,;\n]|[.!?]\s+\S", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The subject of a message that takes something back."""

    stems: frozenset[str]
    # The stem of the noun in it: of "tests for the export", that of "tests".
    head: str
    # Whether its words cannot ask for work instead.
    is_clear: bool

    def is_about(self, request: str) -> bool:
        """Whether it takes back the whole request; of one with several parts it may take back only one."""
        stems = set(_stems(request))
        shared = {s for s in self.stems if any(s.startswith(r) or r.startswith(s) for r in stems)}
        if self.head not in shared or len(shared) < _LEAST_SHARE * len(self.stems):
            return False
        is_single = _JOINED.search(request.strip().rstrip(".!?")) is None
        return is_single or len(shared) >= _LEAST_SHARE * len(stems)


def read_cancellation(text: str) -> Cancellation | None:
    """Parse a message of the user's; None where nothing is named that could be taken back."""
    if len(text) > _LONGEST_CHARS or text.rstrip().endswith(("?", "？")):
        return None
    clear = _CLEAR.match(text) or _PASSIVE.match(text)
    match = clear or _UNCLEAR.match(text)
    if match is None or _LIMITS.search(text):
        return None
    head = _stems(_PREPOSITION.split(match["what"], maxsplit=1)[0])
    if not head:
        return None
    is_clear = clear is not None or _REASON.search(text) is not None
    return Cancellation(frozenset(_stems(match["what"])), head[-1], is_clear)


def _stems(text: str) -> list[str]:
    words = (w.lower() for w in _WORD.findall(text[:2_000]))
    return [w[:_STEM_CHARS] for w in words if w not in _COMMON]
