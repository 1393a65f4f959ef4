"""Decide which sentences of a user's own words are directions to the assistant.

`authorship` removes what is marked as pasted or handed over. What remains may still be foreign: a notice,
an advertisement, a verse, a clause. A short message counts as typed. In a longer passage a sentence binds only if the
passage is in the user's voice (first person, a request, or nothing but directions) and the sentence concerns the work:
what the assistant handles, the user themselves, or what the user asks for. In doubt nothing binds: the record still
quotes the sentence as what the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.context.authorship import is_for_machines, is_role_play
from perdure.context.paste_patterns import RULES_HEADING, WORK
from perdure.context.standing_instructions import is_particular, is_standing, may_bind
from perdure.context.text import sentences

# Fewer sentences count as typed.
_PASSAGE_SENTENCES = 3
_MOST_VERSE_CHARS = 60
_LEAST_VERSE_LINES = 4
# This share of a passage that consists of directions is a list of rules.
_MOSTLY = 0.6

_SELF = re.compile(
    r"\b(?:I|I['’](?:m|ve|d|ll)|i['’]?(?:m|ve|d|ll)?|me|my|mine|ich|mir|mich|mein\w*|je|j['’]\w+|moi|mon|ma|mes|yo|mí"
    r"|mi|mis|-?me|io|meu|minha|я|мне|меня|мой|мои|ik|mij|mijn|ja|mnie|mi|bana|benim|jag|mig|min)\b"
    r"|\b\w{2,20}(?:-moi|ndome|ami)\b|\bme pergunte\b|我|私|僕|俺|저|제가|나한테|내가|나는|تسألني|لي\b|אותי|לי\b"
)
# The user hands out work: a question, "please …", "let's …".
_ASKS_FOR = re.compile(
    r"\b(?:please|pls|plz|let['’]?s|(?:can|could|would|will|did|do) (?:you|we|i)|help me"
    r"|I(?:['’]d| would)? (?:need|want|like)"
    r"|(?:start|begin) with|bitte|kannst du|s'il te plaît|peux-tu|por favor|puedes|per favore|пожалуйста)\b"
    r"|请|帮我|ください|お願い|해 ?줘|주세요",
    re.IGNORECASE,
)
_PLEASE = re.compile(
    r"\b(?:please|pls|plz|kindly|bitte|s'il te plaît|por favor|per favore|пожалуйста)\b|请|ください", re.I
)
# The user states in the first person what they want to get done.
_WISHES = re.compile(
    r"^(?!.*\bas an? )(?:.*\b)?(?:I(?:['’]d| would) like (?:you|help|to|a|some)"
    r"|I (?:need|want) (?:you|help|to|an?|some)"
    r"|help me|(?:can|could|would) you|ich (?:brauche|möchte|hätte gern)|j'aimerais|je voudrais|quisiera|necesito"
    r"|мне нужно|vorrei)\b|我想|我需要|帮我|したいです|해 ?주세요|하고 싶",
    re.IGNORECASE,
)
# A question at the edge of a message.
_QUESTION = re.compile(
    r"^\W*(?:why|what|how|where|which|who|when|does|do|did|is|are|can|could|should|would|any|warum|was|wie|wo|wer|kannst"
    r"|pourquoi|comment|qué|cómo|por qué|почему|как|что)\b[^\n]*[?？]\s*$|^[^\n]*(?:吗|呢|か|까요|나요)[?？。]?\s*$",
    re.IGNORECASE,
)
# Words of companies, authorities and writers to the public, in the place of "I" and "you".
_PUBLIC = re.compile(
    r"\b(?:we (?:may|use|never sell|reserve|offer|are (?:looking|hiring|down|closed))|our (?:client|customers|service"
    r"|terms|team|guests|company)|contact us|order (?:now|today)|book (?:your|now)|apply (?:now|before)|your (?:account"
    r"|parcel|order|smile|password|data|experience|stay|application|cv|privacy|device|computer|purchase|money)"
    r"|you (?:agree|deserve|will own)|ladies and gentlemen|fellow citizens"
    r"|(?:instructions|notice|information) (?:to|for) (?:all )?\w+s"
    r"|dear (?:customers?|parents|colleagues|residents|friends|sir|madam)"
    r"|(?:members?|guests|visitors|residents|customers|candidates?|employees?|tenants?|passengers|users?|readers|drivers"
    r"|reviewers|contributors|maintainers|callers|students|players?|participants|parents|patients|applicants|staff|keepers"
    r"|children|travellers|bakers|investors|clerks?|recipients?|supplier|lessees?)"
    r" (?:must|should|may|shall|can|are|need|have|never|always)|warranty|% off|dear (?:guests|all)"
    r"|everyone must|follow (?:me|us|@)|subscribe|hope (?:that|this) helps|the accepted answer|worked for me)\b"
    r"|[#@]\w{3,}\s*$|^#{1,3} |\b(?:shall|hereby|herein|pursuant)\b",
    re.IGNORECASE | re.MULTILINE,
)
# Marks of a post.
_POSTED = re.compile(
    r"^\s*[-*] \[[ x]\] |(?:^|\s)#[a-z]\w{3,}\s*$|^RT @|\b[\d.]+k? (?:likes|retweets|upvotes|shares)\b", re.I | re.M
)
_ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
# Three words, or a few characters of a script that writes words together.
_SUBSTANCE = re.compile(r"\b\w{1,60}\W{1,5}\w{1,60}\W{1,5}\w|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af].{4}")
_ENDED = re.compile(r"[.!?。！？:：…”\"')\]]\s*$")
_CONTENT_WORD = re.compile(r"[^\W\d_]{4,}")
_COMMON = frozenset(
    re.findall(
        r"\S+",
        """always never must should shall only every with that this from have need want like please there them they then
    than when what which about into before after also just make sure keep more most some your will would could does
    don't been were other where while because first last""",
    )
)

# Reported speech: a person or a text as the source of what follows.
_REPORTS = re.compile(
    r"\b(?:page|site|website|mail|e-?mail|letter|docs?|documentation|readme|ticket|issue|comment|post|article|log"
    r"|output|sign|spec|manual|guide|book|wiki|prompt|text|note|file|tool|model|bot|ad|banner|brief|leaflet|label"
    r"|contract|poster)s?\b[^.:]{0,30}\b(?:says|said|states|stated|tells|told|reads|claims?|demands?|suggests?"
    r"|recommends?|instructs?)\b"
    r"|\b(?:says|said|wrote|writes|replied|told (?:me|us)|posted|asked|shouted|yelled|whispered|warned|added)"
    r"\s*[:,]?\s*[:\"“'„«「]"
    r"|\b(?!I\b|i\b)(?:he|she|they|who|boss|mother|father|mum|mom|dad|teacher|doctor|lawyer|manager|colleague|friend"
    r"|neighbou?r|officer|client|customer|supervisor|wife|husband|brother|sister|landlord|[A-Z][a-zà-ÿ]+)\b[^.!?]{0,40}"
    r"\b(?:says|said|told|tells|wrote|writes|warned|claims|claimed|insisted|insists|announced|shouted|advised|reminded"
    r"|explained|thinks|thought|demanded|ordered)\b[^.!?]{0,30}\b(?:that|to|us|me|everyone|everybody|we|you|I)\b"
    r"|\baccording to (?:the|my|our|a|her|his|their)\b"
    r"|,? (?:the|an?) [\w ]{2,30} (?:said|says|warned|announced)\s*[.,]?$"
    r"|[说說]\s*[：:]\s*[“\"「]|[「『“][^」』”]{1,200}[」』”]\s*(?:と(?:言|書|述)|라고)|(?:قال|قالت|כתב|אמר)\b",
)


@dataclass(frozen=True, slots=True)
class UserSentences:
    """The sentences in the user's own voice; `listed` are items under a heading for rules, which bind as they are."""

    spoken: tuple[str, ...] = ()
    listed: frozenset[str] = frozenset()


def read_sentences(own: str) -> UserSentences:
    """Return the sentences of the user's own words: none of a fiction, of reported speech, of verse or for machines."""
    spoken: list[str] = []
    listed: set[str] = set()
    wanted = _wanted_words(own)
    passages = [_Passage.of(lines) for lines in _passages(own)]
    # A report about the work is the user's, too.
    reports = any(WORK.search(s) and not is_standing(s) for p in passages for s in p.sentences)
    is_long = sum(p.length for p in passages) >= _PASSAGE_SENTENCES + reports
    edges = [s for p in (*passages[:1], *passages[-1:]) for s in (*p.sentences[:1], *p.sentences[-1:])]
    has_voice = any(p.has_voice for p in passages) or any(_QUESTION.match(s) for s in edges)
    has_task = any(p.is_task for p in passages)
    for passage in passages:
        is_short = passage.length < _PASSAGE_SENTENCES
        is_voiced = passage.has_voice or (has_voice and is_short)
        is_task = not is_long or passage.is_task or (has_task and is_short)
        for sentence in passage.sentences:
            if is_role_play(sentence):
                return UserSentences(tuple(spoken), frozenset(listed))
            if is_for_machines(sentence) or _REPORTS.search(sentence):
                continue
            if passage.is_own_list and _ITEM.match(sentence):
                listed.add(sentence)
            elif passage.is_published or not (is_task or _may_count(sentence, wanted, is_voiced=is_voiced)):
                continue
            spoken.append(sentence)
    return UserSentences(tuple(spoken), frozenset(listed))


@dataclass(frozen=True, slots=True)
class _Passage:
    """Lines between blank ones, with the evidence of whose voice they are."""

    sentences: tuple[str, ...]
    is_own_list: bool
    # Verse, or a post to the public: nothing in it binds.
    is_published: bool
    has_voice: bool
    # Work is handed out, and most of the passage is about it: whatever it lays down concerns the work.
    is_task: bool

    @property
    def length(self) -> int:
        """Return the number of sentences, without greetings and the like."""
        return sum(_SUBSTANCE.search(s) is not None for s in self.sentences)

    @classmethod
    def of(cls, lines: Sequence[str]) -> _Passage:
        pieces = tuple(s for line in lines for s in _line_sentences(line))
        directions = [s for s in pieces if is_standing(s)]
        working = [s for s in pieces if WORK.search(s) or _SELF.search(s)]
        is_own_list = RULES_HEADING.match(lines[0]) is not None and len(lines) > 2
        text = "\n".join(lines)
        is_about_work = len(working) >= _MOSTLY * len(pieces)
        is_rule_list = len(directions) >= _MOSTLY * len(pieces) and len(working) * 2 >= len(pieces)
        is_public = _PUBLIC.search(text) is not None
        has_request = any(_ASKS_FOR.search(s) or is_particular(s) for s in pieces if not is_standing(s))
        wishes = any(_WISHES.search(s) and not is_standing(s) for s in pieces)
        is_voiced = has_request or _SELF.search(text) is not None
        return cls(
            pieces,
            is_own_list,
            is_published=not is_own_list
            and (_POSTED.search(text) is not None or (len(working) * 2 < len(lines) and _is_verse(lines))),
            has_voice=is_own_list or (not is_public and (is_voiced or is_rule_list or is_about_work)),
            is_task=not is_public and (wishes or (has_request and len(working) * 2 >= len(pieces))),
        )


def _may_count(sentence: str, wanted: frozenset[str], *, is_voiced: bool) -> bool:
    """Return whether a sentence of a longer message counts: one that would bind must be voiced and concern the work."""
    if not (is_standing(sentence) or may_bind(sentence)):
        return True
    is_ours = WORK.search(sentence) or _SELF.search(sentence) or _PLEASE.search(sentence)
    return is_voiced and bool(is_ours or not wanted.isdisjoint(_content_words(sentence)))


def _passages(text: str) -> Iterator[list[str]]:
    """Yield the lines between blank ones; a heading for rules belongs to the list below it."""
    block: list[str] = []
    for line in (*text.splitlines(), ""):
        if line.strip():
            block.append(line)
        elif block and not (len(block) == 1 and block[0].rstrip().endswith((":", "："))):
            yield block
            block = []
    if block:
        yield block


def _line_sentences(line: str) -> list[str]:
    """Return the sentences of a line; an item of a list is one, with its mark."""
    return [line.strip()] if _ITEM.match(line) and len(sentences(_ITEM.sub("", line))) == 1 else sentences(line)


def _is_verse(lines: Sequence[str]) -> bool:
    """Return whether lines are broken like verse: short, several, and few of them end as sentences do."""
    if len(lines) < _LEAST_VERSE_LINES or any(len(line) > _MOST_VERSE_CHARS or _ITEM.match(line) for line in lines):
        return False
    return sum(_ENDED.search(line) is None for line in lines) * 2 >= len(lines)


def _wanted_words(text: str) -> frozenset[str]:
    """Return the content words of what the user asks for."""
    asking = [s for s in sentences(text) if not is_standing(s) and (_ASKS_FOR.search(s) or is_particular(s))]
    return frozenset(word for s in asking for word in _content_words(s))


def _content_words(sentence: str) -> set[str]:
    return {w.rstrip("s") for w in _CONTENT_WORD.findall(sentence.lower()) if w not in _COMMON}
