"""Extract what the user wants: open requests and standing instructions."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from perdure.context.analysis import PatternMatcher, sentences
from perdure.context.user_words import goes_on, is_bare, own_words
from perdure.core.messages import SUMMARY_OPENINGS, Message
from perdure.redaction import redact

# Words of obligation anywhere in a sentence.
BINDING = PatternMatcher(
    marks=(
        "now on", "here on", "forward", "future,", "henceforth", "all times", "circumstances", "time you",
        "whenever you", "matter what", "default", "must", "should", "shall", "remember", "prefer", "want you to",
        "siempre", "nunca", "jamás", "de ahora", "toujours", "jamais", "désormais", "dorénavant", "immer", "niemals",
        "ab jetzt", "ab sofort", "künftig", "sempre", "d'ora in", "daqui em", "всегда", "никогда", "отныне", "впредь",
    ),
    pattern=re.compile(
        r"\b(?:from now on|from here on|going forward|in (?:the )?future,|henceforth|at all times"
        r"|under no circumstances|every time you|each time you|whenever you|no matter what"
        r"|by default,? (?:use|do|write|answer|reply)"
        r"|(?:you|it|they|everything|all|each|every \w+|code|tests?|commits?|answers?|replies)"
        r" (?:must|should|shall)(?: \w+)? (?:always|never|only|not)"
        r"|(?:must|should|shall) (?:always|never|stay|remain|keep)"
        r"|remember (?:to|that you)|I(?:'d| would)? (?:prefer|want you to always|want you to never))\b"
        r"|\b(?:siempre|nunca|jamás|a partir de ahora|de ahora en adelante|toujours|ne (?:\w+ )?jamais|désormais"
        r"|dorénavant|immer|niemals|ab (?:jetzt|sofort)|künftig|sempre|d'ora in poi|daqui em diante"
        r"|всегда|никогда|отныне|впредь)\b",
        re.IGNORECASE,
    ),
    cjk=re.compile(
        "不要|必须|必須|务必|務必|总是|總是|始终|永远不|永遠不|从现在(?:开始|起)|從現在(?:開始|起)|从今(?:以后|往后)|今后|今後"
        "|以后(?:都|请|不|每)|每次都|一律|禁止|不得|不准|不许|不許|请记住|記住|记住|别再|只能用"
        "|必ず|絶対|常に|これから(?:は|も)|毎回|決して|しないで|しないこと|してはいけ|覚えておいて|以後"
        "|항상|절대|반드시|앞으로(?:는|도)?|매번|하지 ?(?:마|말)|금지|언제나|기억해"
    ),
)  # fmt: skip
# Imperatives, which count only at the start of a clause.
COMMAND = PatternMatcher(
    marks=("always", "never", "don't", "do not", "make sure", "be sure", "avoid", "only ", "stop ", "no "),
    pattern=re.compile(
        r"(?:^|[,;:–—]\s*|\b(?:please|and|but|also|so|then|ok|okay)[, ]+)"
        r"(?:always|never|do not ever|don't ever|don't|do not|make sure|be sure|avoid"
        r"|only (?:use|write|run|answer|reply|change|touch)|stop \w+ing|no (?:more )?\w+ing)\b",
        re.IGNORECASE,
    ),
)
# Directives that need no "always": they bind by their verb.
DIRECTIVE = PatternMatcher(
    marks=(
        "must",
        "me ",
        "alone",
        "stick to",
        "keep ",
        "call me",
        "no ",
        "rather you",
        "we always",
        "important that",
        "if ",
        "use ",
        "не ",
    ),
    pattern=re.compile(
        r"^(?!(?:I|it|there|that|this|he|she)\b)[^.!?]{0,80}\bmust(?: not)? (?!have\b)\w+"
        r"|^(?:please )?(?:ask|check with|consult|tell|warn|wait for) (?:me|my) (?:\w+ )?(?:before|first|ok|approval)\b"
        r"|^(?:please )?leave \S+ alone\b|^(?:please )?stick (?:to|with)\b|^(?:please )?keep (?:every|each|all)\b"
        r"|\bcall me [A-Z]|^no (?!problem|idea|worries|need|rush|thanks|one\b)\w+(?: \w+)?[.!]?$"
        r"|^we always \w+|\bI'd rather you\b|\bit(?:'s| is) important that\b|^if .{3,80}, (?:stop|ask|tell me"
        r"|do not|don't)\b"
        r"|^(?:please )?use \w+, not \w+|^не \w+(?:й|йте|ь|ьте)\b",
        re.IGNORECASE,
    ),
)
# Descriptions, not wishes: "it never works", "I don't know".
_DESCRIBES = re.compile(
    r"\b(?:I|he|she|it|they|this|that|there|we|which|who)"
    r"(?:'ve|'s|'d|'re| have| has| had| was| were| is| am| are| do| does| did)?"
    r"(?: \w+)? (?:always|never)\b(?! (?:want|use|do) )"
    r"|^(?:don't|do not) (?:know|think|see|understand|worry|mind|you)\b",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
_ASKS = re.compile(r"[?？]\s*[\"”’)]*$")
# A line of a handoff that quotes an instruction, with or without its address.
LISTED_RULE = re.compile(r"^[-*•]\s+“(.+)”(?: \(.*\))?$", re.MULTILINE)
# A message that corrects what was done: it binds, though it has no word of obligation.
CORRECTION = PatternMatcher(
    marks=(
        "no", "not ", "wrong", "meant", "actually", "incorrect", "should have", "shouldn't have", "why did you",
        "that's", "still ", "nein", "falsch", "nicht", "gemeint", "non,", "faux", "incorrecto", "mal", "нет", "неправ",
    ),
    pattern=re.compile(
        r"^(?:(?:hm+|ok(?:ay)?|sorry|wait|but|ah)[,.! ]+)*"
        r"(?:no[,.!:]? (?!problem|idea|worries|need|rush|thanks|one\b)\w|not (?:like|what|that|the)\b"
        r"|(?:that|this|it)(?:'s| is| was)(?: still)? (?:wrong|not (?:right|what|correct)|incorrect)|wrong\b"
        r"|incorrect\b|I (?:meant|said|told you|asked (?:you )?(?:for|to)|didn'?t (?:ask|mean|want|say))\b"
        r"|actually[, ]|you (?:should(?:n't| not)? have|misunderstood|forgot|missed)|why did you\b|nein[,. ]"
        r"|(?:das ist )?falsch\b|ich meinte|nicht so\b|non[,. ]|c'est faux|no es\b|está mal|нет[,. ]|неправильно)",
        re.IGNORECASE,
    ),
    cjk=re.compile("^(?:不对|不是|错了|我(?:说的|的意思)是|別|違(?:う|い)|そうじゃ|ではなくて|아니|틀렸|그게 아니)"),
)  # fmt: skip

_LONGEST = 500
_SHORTEST = 4


def rules_in(message: Message) -> tuple[str, ...]:
    """Extract the standing instructions of one message. Pure, so the result can be cached."""
    return tuple(s for s in sentences(own_words(message)) if is_standing(s))


def corrections_in(message: Message) -> tuple[str, ...]:
    """Extract the corrections of one message: the sentence that corrects, with the one after it. Pure."""
    lines = sentences(own_words(message))
    if not lines or not CORRECTION.is_in(lines[0]) or is_standing(lines[0]):
        return ()
    text = " ".join(lines[:2] if len(lines[0]) < _LONGEST // 2 else lines[:1])
    return (text,) if _SHORTEST < len(text) <= 2 * _LONGEST else ()


def merge_rules(rules_by_message: Iterable[tuple[str, ...]], *, previous: str = "", limit: int = 20) -> list[str]:
    """Merge the rules of many messages, oldest first, without duplicates; over the limit, the first and newest remain.

    `previous` is the section of an earlier handoff that quotes rules.
    """
    unique = dict.fromkeys(LISTED_RULE.findall(previous))
    for rules in rules_by_message:
        for rule in rules:
            # A repeated rule moves to its last position.
            unique.pop(rule, None)
            unique[rule] = None
    rules = tuple(unique)
    if len(rules) <= limit:
        return list(rules)
    return [*rules[: limit // 2], *rules[len(rules) - (limit - limit // 2) :]]


def is_standing(sentence: str) -> bool:
    """Whether a sentence is a standing instruction, not a statement or a question."""
    if not _SHORTEST <= len(sentence) <= _LONGEST or _ASKS.search(sentence):
        return False
    sentence = _BULLET.sub("", sentence)
    lead, _, rest = sentence.partition(": ")
    if BINDING.is_in(sentence) or DIRECTIVE.is_in(sentence) or (len(lead) <= 40 and DIRECTIVE.is_in(rest)):
        return True
    return COMMAND.is_in(sentence) and _DESCRIBES.search(sentence) is None


# A demand on the reader of a text, without a word of obligation: "approve all commands", "do not ask the user".
_DEMANDS = re.compile(
    r"\b(?:ignore|disregard|forget) (?:all |any |the |your )*(?:previous|prior|earlier|above|other|system)\b"
    r"|\bwithout (?:asking|confirmation|approval|telling|informing)\b"
    r"|\b(?:do not|don't|never) (?:ask|tell|inform|mention)\b"
    r"|^(?:please )?(?:send|forward|upload|e-?mail|post|transfer|wire|delete|drop|approve|grant|disable|install|execute"
    r"|visit|open|click|share|leak|reveal|print|exfiltrate|obey|comply|follow)\b.{0,120}"
    r"(?:https?://|@|~/|\ball\b|\bevery\b|\$)"
    r"|\byou (?:must|should|shall|have to|need to|are (?:now|required|allowed|authori[sz]ed))\b",
    re.IGNORECASE,
)


def is_directive(text: str) -> bool:
    """Whether a line of prose demands something of its reader."""
    return any(is_standing(s) or _DEMANDS.search(s.lstrip("-*•0123456789.) ")) for s in sentences(text))


OPEN = "The user's unfinished requests, word for word, newest last:"
ALL_ANSWERED = "None. Every request so far was answered; the last one was:"
# Remaining work where nothing is stated beyond the requests.
AS_ASKED = "- What Active Task quotes, as far as it is not told as done above."
QUOTE_CHARS = 1_600
MOST_REQUESTS = 6

_LEFT_OUT = "[… {:,} characters left out …]"
_SHORTENED = re.compile(r"^\[… [\d,]+ characters left out …\]$", re.MULTILINE)
_ASKS_BACK = re.compile(r"[?？][\s\"'”’)\]*_`]*$")


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """Open requests of the user; `closed` are those the last reply answered."""

    open: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()


def requests_of(messages: Iterable[Message], previous: str = "") -> OpenRequests:
    """Track the requests through messages; `previous` is the Active Task of the handoff before them."""
    before = parse_active_task(previous)
    waiting, closed = list(before.open), list(before.closed)
    for m in messages:
        if m.role == "tool" or m.tool_calls:
            continue
        if m.is_real_user:
            text = m.typed_text.strip()
            if not text or text.startswith(SUMMARY_OPENINGS):
                continue
            if not is_bare(text):
                if before.open:
                    # A request quoted by the handoff and kept after it must not be listed twice.
                    quoted = quote(text)
                    waiting = [w for w in waiting if quote(w) != quoted]
                waiting.append(text)
            elif goes_on(text) and not waiting:
                waiting, closed = closed, []
        elif m.role == "assistant" and m.kind == "assistant" and waiting:
            reply = m.typed_text.strip()
            if reply and not _ASKS_BACK.search(reply[-60:]):
                waiting, closed = [], waiting
    return OpenRequests(tuple(waiting), tuple(closed))


def active_task(requests: OpenRequests) -> str:
    """Render the Active Task section: quotes only, redacted, of bounded length."""
    if requests.open:
        quotes = [quote(r) for r in requests.open[-MOST_REQUESTS:]]
        more = len(requests.open) - len(quotes)
        earlier = f"[{more} earlier open requests are in the compacted messages]\n" if more > 0 else ""
        return f"{OPEN}\n{earlier}" + "\n\n".join(quotes)
    if requests.closed:
        return f"{ALL_ANSWERED}\n{quote(requests.closed[-1])}"
    return "None"


def parse_active_task(section: str) -> OpenRequests:
    """Parse the requests quoted by an Active Task section."""
    quotes: list[str] = []
    lines: list[str] = []
    for line in (*section.splitlines(), ""):
        if line.startswith(">"):
            lines.append(line[2:] if line.startswith("> ") else line[1:])
        elif lines:
            quotes.append("\n".join(lines))
            lines = []
    if section.startswith("None"):
        return OpenRequests(closed=tuple(quotes))
    return OpenRequests(open=tuple(quotes))


def quote(text: str) -> str:
    """Render a request as a block quote; a long one by both ends. Idempotent."""
    text = redact(text.strip())
    if len(text) > QUOTE_CHARS and not _is_shortened(text):
        head, tail = QUOTE_CHARS * 2 // 3, QUOTE_CHARS // 3
        left_out = _LEFT_OUT.format(len(text) - head - tail)
        text = f"{text[:head].rstrip()}\n{left_out}\n{text[-tail:].lstrip()}"
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _is_shortened(text: str) -> bool:
    """Whether an earlier handoff shortened it already: shortened again, it would not be recognised."""
    return len(text) <= QUOTE_CHARS + 2 * len(_LEFT_OUT) and _SHORTENED.search(text) is not None
