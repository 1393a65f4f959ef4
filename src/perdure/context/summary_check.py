"""Verify a summary against its sources: mark or remove what occurs in none of them.

Models misremember paths, round numbers, and, worst, invent requests and approvals. A path, number, id or URL without a
source is marked; a file listed as relevant without a source, and a request or quote that the user never made, are
removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal

from perdure.context.exact_values import kind_of, scan
from perdure.core.messages import Message

Kind = Literal["path", "number", "id", "url", "quote", "request"]

MARK = "[unverified]"

# Straight quotes are paired from the left, short ones too: else the text between two quotations would pass for one.
# A quotation within one is escaped and begins none, so that each mark is looked at once; others that never end are
# looked for no further than a quotation goes.
_QUOTED = re.compile(
    r"“([^”]{12,3000}+)”|(?<!\\)\"((?:[^\"\\\n]|\\[^\n])*)\"|\\\"([^\"\n]{12,})\\\""
    r"|「([^」]{4,3000}+)」|『([^』]{4,3000}+)』|«([^»]{12,3000}+)»"
)
_SHORTEST_QUOTE = 12
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_USER_SAYS = re.compile(
    r"\b(?:the )?user(?:'s|’s|-)? ?(?:\w+ ){0,2}?(?:asked|asks|wants?|wanted|requested|requests|said|says|told"
    r"|confirmed|approved|agreed|instructed|insisted|demanded|needs|prefers|accepted|allowed|permitted|authori[sz]ed|granted"
    r"|gave|request|instruction|approval|consent|permission)\b"
    r"|\b(?:asked|requested|wanted|said|confirmed|approved|agreed|instructed|demanded|accepted|allowed|permitted"
    r"|authori[sz]ed|granted)(?: \w+){0,3} by the user\b|\b(?:per|according to) the user\b"
    r"|\b(?:der|die) (?:be)?nutzer(?:in)? (?:hat|will|möchte|wünscht|wollte|bat)\b"
    r"|\bl[’']utilisateur (?:a|veut|souhaite|demande)\b|\bel usuario (?:ha|quiere|pidió|pide|aprobó|confirmó|dijo)\b"
    r"|\bпользователь (?:хочет|просил|попросил|подтвердил|сказал|одобрил)\b"
    r"|用户(?:已经?|曾)?(?:要求|希望|想要?|说|确认|同意|批准|授权)|使用者(?:已|曾)?(?:要求|希望|想要?|說|確認|同意)"
    r"|ユーザー?(?:は|が)|사용자(?:는|가|의)",
    re.IGNORECASE,
)
_CONSENT = re.compile(
    r"\b(?:confirm|approv|agree|accept|allow|permit|authori[sz]|grant|consent|permission)|bestätigt|genehmigt|erlaubt"
    r"|approuvé|autorisé|aprob|confirm|одобр|подтверд|确认|同意|批准|授权|確認|承認|許可|승인|허락|동의",
    re.IGNORECASE,
)
# "Not confirmed by the user", "awaits the user's approval": says that a consent is missing.
_UNCONFIRMED = re.compile(
    r"\b(?:not|never|n['’]t|yet to)(?: (?:yet|been|be|explicitly|ever|fully|formally|have|has))*"
    r" (?:confirm|approv|agree|accept|authori[sz]|decid)\w*(?: (?:on|to|by|with))*(?: the user)?\b"
    r"|\bun(?:confirmed|approved|authori[sz]ed)(?: by the user)?\b"
    r"|\b(?:await(?:s|ing)|pending|waiting for|subject to) (?:the )?(?:user(?:'s|’s)? )?"
    r"(?:approval|confirmation|consent|decision|go-ahead)\b",
    re.IGNORECASE,
)
# "as the user asked": a report appeals to the user without saying more of them.
_APPEAL = re.compile(
    r",? ?\(?\b(?:as|like|because|since|which is what) (?:the )?user (?:had |has )?(?:asked|requested|wanted|said)"
    r"(?: for| to)?\b\)?|,? ?\(?\b(?:at|on|per|upon) the user(?:'s|\u2019s) (?:request|wish)\b\)?",
    re.IGNORECASE,
)
# Any other wording that speaks for the user: marked, not removed, because it may also report what was done for them.
_PERSON = (
    r"(?:user|owner|human|operator|customer|client|requester|person|maintainer|boss"
    r"|nutzer|benutzer|utilisateur|usuario)"
)
_SPEAKS_FOR_USER = re.compile(
    rf"\b{_PERSON}(?:'s|’s)? (?:\w+ ){{0,2}}?(?:\w{{2,}}ed|chose|gave|made|let|said|told|wrote|meant|knew|ok'?d|insists"
    r"|orders"
    r"|decides|chooses|expects|requires|demands|agrees|approves|confirms|accepts|allows|permits|fine|happy|objections?"
    r"|go-ahead|decision|rule|wish|choice|order)\b"
    rf"|\b{_PERSON}\s*[:：]|\b(?:by|with|per|as|from) (?:the |our )?{_PERSON}\b"
    r"|\b(?:you|they|she|he) (?:told|asked|said|wanted|approved|agreed|instructed|ordered|allowed|decided|confirmed)\b"
    r"|^\W*(?:approved|agreed|authori[sz]ed|signed off|permission|consent|go-ahead)\b"
    r"|^\W*standing (?:instruction|rule|order)\b"
    r"|用户|使用者|ユーザー|사용자|пользовател|(?:be)?nutzer(?:in)? (?:hat|will|möchte)",
    re.IGNORECASE,
)
# Nouns and names that only contain the word: a table, an id, an account.
_USER_NOUN = re.compile(
    r"\buser[ _-]?(?:s?\b[ _-]?)?(?:id|ids|name|names|table|tables|account|accounts|data|interface|model|group|agent"
    r"|session"
    r"|sessions|settings|defined|input|profile|role|roles|facing|space|guide|story|stories)\b"
    r"|用户(?:名|表|界面|数据|组|态|空间)|/users?/",
    re.IGNORECASE,
)
_INVISIBLE = re.compile(r"[\u200b-\u200f\u2060\ufeff*_`]")
# Sections about the user: quotes in them must be the user's.
_REPORTS = frozenset(("Completed Actions", "Active State", "Resolved Questions", "Relevant Files"))
_USERS_OWN = frozenset(("Active Task", "Pending User Asks", "Constraints & Preferences"))
# Sections among these in which lines without a quote need support by the user's words, too.
_BINDING = frozenset(("Pending User Asks", "Constraints & Preferences"))
_FILES = "Relevant Files"
_CLOSING = "`\"'”」』»*"
_NAME_REST = re.compile(r"(?:[./:@-]?[A-Za-z0-9_])+")
_OPENING = {"”": "“", '"': '"', "」": "「", "』": "『", "»": "«"}
# Share of a claim's words that must occur in the sources: a summary rewords, but not everything.
_LEAST_SHARE = 0.4
_CONSENT_SHARE = 0.6
# Of a long claim, by several passages together.
_JOINT_SHARE = 0.5
_MENTIONED_SHARE = 0.34
_SHORT_SHARE = 0.6
_SPACED_WORDS = re.compile(r"[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{4,}")
_CJK_RUNS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_PIECES = re.compile(r"[.!?。！？\n]+")
_LONGEST_PASSAGES = 20_000
# The sources are searched in parts of this size, with so much of the one before, more than a quotation.
_PART_CHARS = 500_000
_SEAM_CHARS = 20_000
_STEM_CHARS = 5
_FEWEST_WORDS = 4
# Words of a claim for each passage that may support it, and the fewest that a passage has to have of them.
_WORDS_PER_PASSAGE = 6
# The same where the passages are the points of a plan.
_WORDS_PER_POINT = 3
_LEAST_WORDS = 2
_CLAUSES = re.compile(r"(?<![.;:,!?()。；，、])[.;:,!?()。；，、]++(?:\s|$)|\s[(–—-]|\s(?:and|und|et|y|then|also)\s")
_LEAST_CLAUSE = 3
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "with from that this them then than have into over only also their which when where while both more most each "
        "some does been were will after befor",
    )
)
_MOST_ALTERNATIVES = 6
_WHOLE_NUMBERS = re.compile(r"(?<![\w.])\d{1,9}(?![\w%]|\.\d)")
_MOST_NUMBERS = 10


@dataclass(frozen=True, slots=True)
class GroundingFinding:
    """A statement of a summary that its sources do not support."""

    section: str
    text: str
    kind: Kind
    action: Literal["marked", "removed"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The verified sections and the findings."""

    sections: dict[str, str]
    findings: tuple[GroundingFinding, ...] = ()


# The words of the passages of each text.
PassageWords = dict[str, tuple[frozenset[str], ...]]


class GroundingSources:
    """The source texts of a summary, with their facts where those are cached."""

    def __init__(
        self,
        texts: Iterable[str],
        facts: Iterable[frozenset[str]] | None = None,
        *,
        passages: PassageWords | None = None,
    ) -> None:
        """Create sources; `passages` is shared by those that have texts in common, and filled when it is needed."""
        self._source = tuple(texts) if isinstance(texts, Iterator) else texts
        self._facts = facts
        self._known = {} if passages is None else passages
        self._low_parts: list[str] = []

    def has_fact(self, fact: str) -> bool:
        """Whether a fact occurs in the sources; for a path, a suffix of at least two parts is enough."""
        if fact in self._names or fact.lower() in self._low_names:
            return True
        if kind_of(fact) == "path":
            parts = [p for p in fact.replace("\\", "/").split("/") if p not in ("", ".", "~")]
            return (len(parts) > 2 and "/".join(parts[-2:]) in self._names) or self._has_alternatives(fact, parts)
        return False

    def _has_alternatives(self, fact: str, parts: list[str]) -> bool:
        """Whether words with slashes between them ("create/edit/run", "61/133") each occur in the sources."""
        is_path = fact.startswith(("/", "~", ".", "\\")) and len(parts) > 1
        if is_path or not parts or "." in parts[-1] or len(parts) > _MOST_ALTERNATIVES:
            return False
        words = (re.compile(rf"(?<![\w]){re.escape(p.lower())}(?![\w])") for p in parts)
        return all(any(map(word.search, self._low)) for word in words)

    def has_quote(self, quote: str) -> bool:
        """Whether the quote occurs in the sources, ignoring spacing and punctuation; dots match any text."""
        # A summary escapes quotation marks within a quotation.
        variants = (" ".join(_plain(text).split()) for text in dict.fromkeys((quote, quote.replace('\\"', '"'))))
        return any(all(map(self._has_words, filter(None, _split_quote(variant)))) for variant in variants)

    def best_share(self, claim: str, *, fewest: int = _FEWEST_WORDS) -> float:
        """Return the share of a claim's words that occur in one passage; words from all over prove nothing."""
        words = _stems(claim)
        if len(words) < fewest:
            return 1.0
        return max((len(words & passage) / len(words) for passage in self._passages), default=0.0) if words else 0.0

    def joint_share(self, claim: str, *, words_per_passage: int = _WORDS_PER_PASSAGE) -> float:
        """Return the share of a long claim's words that a few passages together have, one for every few words."""
        words = _stems(claim)
        return 1.0 - len(self._find_unmatched(claim, words_per_passage)) / len(words) if words else 0.0

    def supports_clauses(self, claim: str, *, words_per_passage: int = _WORDS_PER_PASSAGE) -> bool:
        """Whether every clause of a long claim has words of those passages: a true one supports no other."""
        unmatched = self._find_unmatched(claim, words_per_passage)
        clauses = (_stems(clause) - _FUNCTION_WORDS for clause in _CLAUSES.split(claim))
        return not any(len(c) >= _LEAST_CLAUSE and c <= unmatched for c in clauses)

    def _find_unmatched(self, claim: str, words_per_passage: int) -> frozenset[str]:
        """Return the words of a claim that are missing from the passages that match it best."""
        words = _stems(claim)
        for _ in range(len(words) // words_per_passage):
            best = max(self._passages, key=lambda p: len(words & p), default=frozenset[str]())
            if len(words & best) < _LEAST_WORDS:
                break
            words -= best
        return words

    def mentions(self, claim: str) -> bool:
        """Whether a passage is about what the claim says; a word in common is no evidence for a short one."""
        words = _stems(claim)
        if not words:
            return self.has_quote(claim.strip(" -*"))
        return self.best_share(claim, fewest=1) >= (_MENTIONED_SHARE if len(words) >= _FEWEST_WORDS else _SHORT_SHARE)

    @cached_property
    def _passages(self) -> list[frozenset[str]]:
        """The words of every two neighbouring sentences."""
        known = self._known
        missing = dict.fromkeys(text for text in self._texts if text not in known)
        known.update((text, words_of_passages(text)) for text in missing)
        return [passage for text in self._texts for passage in known[text]]

    def _has_words(self, words: str) -> bool:
        """Whether the words occur in the sources, ignoring white space."""
        if " " not in words:
            return any(words in part for part in self._low)
        # Removing white space from ten thousand messages is ten times slower than a regex that skips it.
        pattern = re.compile(r"\s+".join(map(re.escape, words.split(" "))))
        return any(map(pattern.search, self._low))

    @cached_property
    def _names(self) -> str:
        """Every fact of the sources, as one text to search."""
        return self._text if self._facts is None else "\n".join(frozenset().union(*self._facts))

    @cached_property
    def _low_names(self) -> str:
        return self._names.lower()

    @property
    def _low(self) -> Iterator[str]:
        """The sources in lower case, in parts: most of what is looked up occurs in the first ones."""
        number = 0
        while number < len(self._low_parts) or self._add_low_part():
            yield self._low_parts[number]
            number += 1

    def _add_low_part(self) -> bool:
        texts: list[str] = []
        size = 0
        for text in self._unread:
            texts.append(text)
            size += len(text)
            if size >= _PART_CHARS:
                break
        if not texts:
            return False
        # A part begins with the last lines of the one before, or a quotation across the seam would be missed.
        before = self._low_parts[-1] if self._low_parts else ""
        seam = before.find("\n", len(before) - _SEAM_CHARS)
        part = _plain("\n".join(texts))
        self._low_parts.append(f"{before[seam + 1 :]}\n{part}" if seam >= 0 else part)
        return True

    @cached_property
    def _unread(self) -> Iterator[str]:
        return iter(self._source)

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(self._source)

    @cached_property
    def _text(self) -> str:
        # Built lazily: the sources are long, and many lines have nothing to look up.
        return "\n".join(self._texts)


def check_summary(
    sections: Mapping[str, str],
    sources: Iterable[str],
    facts: Iterable[frozenset[str]] | None = None,
    *,
    users: Iterable[str] | None = None,
    doubted: frozenset[str] = frozenset(),
    by_code: frozenset[str] = frozenset(),
    approvals: Sequence[str] = (),
) -> CheckResult:
    """Mark or remove everything in the sections that the sources do not support.

    `facts` are the cached facts of the sources, a fiftieth of the text to search. `users` are the user's own words,
    which alone support a claim about the user; without them every source does. `doubted` facts are marked again
    although a source has them: the model that repeats a value is no source of it. Lines that code wrote are no claims.
    `approvals` are the plans that the user approved through a tool, which are among the `users` texts.
    """
    evidence = _Evidence(
        everything := GroundingSources(sources, facts),
        everything if users is None else GroundingSources(users),
        doubted,
        GroundingSources(approvals) if approvals else None,
    )
    findings: list[GroundingFinding] = []
    checked = {
        name: "\n".join(
            supported
            for line in text.split("\n")
            if (supported := line if line in by_code else _checked_line(name, line, evidence, findings)) is not None
        ).strip()
        for name, text in sections.items()
    }
    return CheckResult({n: t for n, t in checked.items() if t}, tuple(findings))


@dataclass(frozen=True, slots=True)
class _Evidence:
    """All sources of a summary, and the user's own words among them."""

    sources: GroundingSources
    users: GroundingSources
    doubted: frozenset[str] = frozenset()
    # What the user approved or answered through a tool.
    approvals: GroundingSources | None = None


def _checked_line(section: str, line: str, evidence: _Evidence, findings: list[GroundingFinding]) -> str | None:
    """Return the verified line; None where it must be removed."""
    if (invented := _find_invented_claim(section, line, evidence)) and section in _REPORTS:
        # Of a report, the mere appeal to the user is left out: what was done has evidence of its own.
        plain = _APPEAL.sub("", line)
        if plain != line and len(_stems(plain)) >= _FEWEST_WORDS and not _USER_SAYS.search(plain):
            findings.append(GroundingFinding(section, line.strip(" -*"), "request", "marked"))
            line, invented = plain, None
    if invented:
        findings.append(GroundingFinding(section, invented, "request", "removed"))
        return None
    unsupported = [f for f in _checkable(line) if f in evidence.doubted or not evidence.sources.has_fact(f)]
    unsupported = [f for f in unsupported if f in evidence.doubted or not _is_computed(f, line, unsupported)]
    unsupported = [f for f in unsupported if not any(f != other and f in other for other in unsupported)]
    if section == _FILES and unsupported and line.lstrip(" -*`0123456789.").startswith(unsupported[0]):
        findings.append(GroundingFinding(section, unsupported[0], "path", "removed"))
        return None
    for fact in unsupported:
        line = _mark_text(line, fact)
        findings.append(GroundingFinding(section, fact, _KINDS[kind_of(fact)], "marked"))
    for quote in quotes_in(line):
        if not evidence.sources.has_quote(quote):
            line = _mark_text(line, quote)
            findings.append(GroundingFinding(section, quote, "quote", "marked"))
    is_claim = _speaks_for_user(without_missing_consent(line))
    is_unquoted = (is_claim or section in _BINDING) and not quotes_in(line) and MARK not in line
    fewest = 1 if is_claim else _FEWEST_WORDS
    if is_unquoted and evidence.users.best_share(line, fewest=fewest) < _LEAST_SHARE and not _is_joint(line, evidence):
        # Reads as a wish of the user without their words: it may come from a document or web page.
        findings.append(GroundingFinding(section, line.strip(" -*"), "request", "marked"))
        line = f"{line} {MARK}"
    return line


def _is_joint(line: str, evidence: _Evidence) -> bool:
    return evidence.users.joint_share(line) >= _LEAST_SHARE and evidence.users.supports_clauses(line)


def _speaks_for_user(line: str) -> bool:
    plain = _USER_NOUN.sub(" ", _INVISIBLE.sub("", line))
    return _SPEAKS_FOR_USER.search(plain) is not None


def _find_invented_claim(section: str, line: str, evidence: _Evidence) -> str | None:
    """Return the claim about the user in a line that their words do not support; None without one."""
    users = evidence.users
    plain = without_missing_consent(line)
    is_claim = _USER_SAYS.search(plain) is not None
    if not is_claim and section not in _USERS_OWN:
        return None
    quotes = quotes_in(line)
    if wrong := [q for q in quotes if not users.has_quote(q)]:
        return wrong[0]
    if quotes or not is_claim:
        return None
    claim = _USER_SAYS.sub(" ", plain)
    is_consent = _CONSENT.search(plain) is not None
    # An invented approval is worse than one that is requested twice.
    fewest, least = (1, _CONSENT_SHARE) if is_consent else (_FEWEST_WORDS, _LEAST_SHARE)
    if users.best_share(claim, fewest=fewest) >= least:
        return None
    # Several sentences of theirs together support a wish in other words; a consent only what they were shown.
    is_known = is_in_plan(claim, evidence.approvals) if is_consent else is_supported_jointly(claim, users)
    return None if is_known else line.strip(" -*")


def is_supported_jointly(claim: str, sources: GroundingSources, *, words_per_passage: int = _WORDS_PER_PASSAGE) -> bool:
    """Whether a few passages together have the words of a claim, and some of those of each clause."""
    share = sources.joint_share(claim, words_per_passage=words_per_passage)
    return share >= _JOINT_SHARE and sources.supports_clauses(claim, words_per_passage=words_per_passage)


def is_in_plan(claim: str, approvals: GroundingSources | None) -> bool:
    """Whether a plan that was approved as a whole has what a line says was agreed to, each part in a point of it."""
    return approvals is not None and is_supported_jointly(claim, approvals, words_per_passage=_WORDS_PER_POINT)


def without_missing_consent(line: str) -> str:
    """Return a line without the words that say that the user has not confirmed something."""
    return _UNCONFIRMED.sub(" ", line)


_KINDS: dict[str, Kind] = {"path": "path", "file": "path", "url": "url", "number": "number", "id": "id", "code": "id"}


def _checkable(line: str) -> list[str]:
    """Return the facts of a line that need a source, in order; names may be the summary's own."""
    facts = [f for f in scan(line) if kind_of(f) in _KINDS and (kind_of(f) != "code" or f.isalnum())]
    return sorted(facts, key=line.find)


def _is_computed(number: str, line: str, unsupported: Sequence[str]) -> bool:
    """Whether a number is the sum, the difference or the product of two others of its line that have a source."""
    if not number.isdecimal():
        return False
    others = [n for n in _WHOLE_NUMBERS.findall(line)[:_MOST_NUMBERS] if n != number and n not in unsupported]
    pairs = list(combinations(map(int, others), 2))
    return any(int(number) in (a + b, abs(a - b), a * b) for a, b in pairs if 1 not in (a, b))


def user_claims(checked: str) -> list[str]:
    """Return the lines of verified sections that quote the user or make claims about them."""
    return [line for line in checked.splitlines() if line.startswith((">", "- “")) or _USER_SAYS.search(line)]


def words_of_passages(text: str) -> tuple[frozenset[str], ...]:
    """Return the words of every two neighbouring sentences of a text."""
    pieces = [_stems(piece) for piece in _PIECES.split(text[:_LONGEST_PASSAGES])]
    return tuple(a | b for a, b in zip(pieces, [*pieces[1:], frozenset()], strict=True))


def _stems(text: str) -> frozenset[str]:
    """Return the words of a text by their first letters: "approved" and "approves" are the same; CJK by pairs."""
    words = {w.lower()[:_STEM_CHARS] for w in _SPACED_WORDS.findall(text)}
    if not text.isascii():
        words.update(run[i : i + 2] for run in _CJK_RUNS.findall(text) for i in range(len(run) - 1))
    return frozenset(words)


def _split_quote(quote: str) -> Iterator[str]:
    """Yield the pieces of a quotation between its marks of omission."""
    return (p.strip(" .,;:!?。、") for p in re.split(r"…|\.\.\.|\[[^\]]*\]", quote))


def quotes_in(line: str) -> list[str]:
    """Return the quotations of a line; quotes inside code belong to the code."""
    # Masked in place, so that a quotation with code in it is returned as it stands.
    masked = _CODE_SPAN.sub(lambda m: f"`{'_' * (len(m[0]) - 2)}`", line) if "`" in line else line
    spans = (m.span(n) for m in _QUOTED.finditer(masked) if (n := m.lastindex or 0) and len(m[n]) >= _least_quote(n))
    return [line[slice(*span)] for span in spans]


def _least_quote(group: int) -> int:
    return _SHORTEST_QUOTE if group == 2 else 1


def _mark_text(line: str, text: str) -> str:
    """Append a mark to the first occurrence of `text`, unless it has one."""
    at = line.find(text)
    if at < 0:
        return line
    end = at + len(text)
    # After the whole name, so that `db-6543.internal` is not torn.
    if (rest := _NAME_REST.match(line, end)) is not None:
        end = rest.end()
    # After closing punctuation, so that a quoted path stays copyable.
    while end < len(line) and line[end] in _CLOSING:
        end += 1
    return line if line.startswith(f" {MARK}", end) else f"{line[:end]} {MARK}{line[end:]}"


def without_marked(text: str) -> str:
    """Remove everything from a verified text that it marks as unsupported."""
    for item in sorted(set(_marked_items(text)), key=len, reverse=True):
        text = text.replace(item, " ")
    return text.replace(f" {MARK}", "")


def doubted_facts(handoff: str, messages: Sequence[Message]) -> frozenset[str]:
    """Return the facts a handoff marks that neither the user nor the result of a call has confirmed since.

    A result confirms nothing that its own call had as an argument: `cat ghost.py` is answered with the name, too.
    """
    facts = {f for item in _marked_items(handoff) for f in (item, *scan(item))}
    if not facts:
        return frozenset()
    arguments = {call.id: call.arguments for m in messages for call in m.tool_calls}
    for message in messages:
        if message.kind in ("user", "tool"):
            own = arguments.get(message.tool_call_id or "", "")
            facts -= {f for f in facts if f in message.text and f not in own}
    return frozenset(facts)


def _marked_items(text: str) -> Iterator[str]:
    for line in text.splitlines():
        at = line.find(f" {MARK}")
        while at >= 0:
            before = line[:at].rstrip(_CLOSING)
            closing = line[len(before) : at]
            opening = _OPENING.get(closing[-1:], "")
            start = before.rfind(opening) + 1 if opening and opening in before else before.rfind(" ") + 1
            if item := before[start:].strip(_CLOSING):
                yield item
            at = line.find(f" {MARK}", at + 1)


def _plain(text: str) -> str:
    """Return a text in lower case, with one kind of quotation mark and without marks of code and emphasis."""
    # `str.replace` is much faster here than a translation table or a regex.
    for mark, plain in (("“", "'"), ("”", "'"), ("‘", "'"), ("’", "'"), ('"', "'"), ("`", ""), ("**", "")):
        text = text.replace(mark, plain)
    return text.lower()
