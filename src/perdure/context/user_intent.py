"""What the user wants: the text they typed themselves, open requests, standing instructions, small talk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from perdure.context.authorship import asks_something, authored_text, before_fiction
from perdure.context.standing_instructions import is_standing, may_bind
from perdure.context.text import sentences
from perdure.context.user_voice import UserSentences, read_sentences
from perdure.core.messages import SUMMARY_OPENINGS, Message, TextPart, is_background
from perdure.redaction import redact


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_GO_ON = _words(
    """continue go on proceed keep going carry resume next ahead more again do it weiter mach fortfahren fortsetzen
    continuer continuez poursuis poursuivez suite continúa continua continuar sigue adelante siga prossiga prosegui
    avanti продолжай продолжайте дальше далее devam"""
)
_POLITE = _words(
    """thanks thank you thx ty ok okay okey k yes y yep yeah yup sure great nice cool perfect good fine awesome lgtm
    right correct agreed understood got looks works for the so much very a lot please pls now then and well done with
    this that danke bitte ja gut super alles klar merci oui bien parfait gracias sí si vale bueno perfecto por favor
    grazie sì bene obrigado obrigada sim tudo bem спасибо да хорошо ладно отлично пожалуйста tamam teşekkürler evet"""
)
_GO_ON_CJK = _words(
    """请继续 继续吧 继续 請繼續 繼續 接着做 接着 往下 下一步
    続けてください 続けて つづけて 続行 続き 進めて お願いします
    계속해주세요 계속해줘 계속하세요 계속해 계속 이어서 진행해줘 진행해 진행"""
)
_POLITE_CJK = _words(
    """谢谢你 谢谢 謝謝 多谢 感谢 好的 好了 好吧 好 可以的 可以 行 嗯 是的 是 对的 对 没问题 不错 了 吧
    ありがとうございます ありがとう 了解しました 了解です 了解 はい わかりました オーケー いいですね いいよ いい うん
    감사합니다 고마워요 고마워 고맙습니다 네 예 응 좋아요 좋아 좋습니다 알겠습니다 알겠어 주세요 해줘"""
)
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_PHRASES_CJK = re.compile("|".join(sorted(_GO_ON_CJK | _POLITE_CJK, key=len, reverse=True)))
_GO_ON_CJK_ANY = re.compile("|".join(sorted(_GO_ON_CJK)))
# A number, path or code makes even a short message a request.
_SPECIFIC = re.compile(r"[\d/\\<>=@#$%&`{}\[\]]")
_MOST_CHARS = 60


def is_bare(text: str) -> bool:
    """Whether a message has no request of its own: only thanks, agreement or "go on"."""
    if len(text) > _MOST_CHARS or _SPECIFIC.search(text):
        return False
    words = (w.lower() for w in _WORD.findall(_CJK.sub(" ", text)))
    if any(w not in _GO_ON and w not in _POLITE for w in words):
        return False
    return not _PHRASES_CJK.sub("", "".join(_CJK.findall(text)))


def goes_on(text: str) -> bool:
    """Whether a bare message asks to continue."""
    words = {w.lower() for w in _WORD.findall(text)}
    return bool(words & _GO_ON) or bool(_GO_ON_CJK_ANY.search(text))


# Markup that programs put into user messages. The first group is a bare opening tag, removed with its content.
_TAG = re.compile(r"<([a-z][\w-]*)>|<[/a-z][^>]*>")
_CLOSING = re.compile(r"</([a-z][\w-]*)>")
_FRAME_CHARS = 1_000


def own_words(message: Message) -> str:
    """Return the text the user typed themselves; "" for messages of other roles."""
    if not message.is_real_user:
        return ""
    return "\n".join(filter(None, (authored_text(text).text for text in own_parts(message))))


def own_parts(message: Message) -> list[str]:
    """Return the text parts of a user message that may be typed: of several, the shortest that asks for something.

    A client sends attachments as parts of their own, before or after the question.
    """
    texts = [p for p in message.parts if isinstance(p, TextPart) and not is_background(message.role, p.text)]
    if len(texts) < 2 or all(p.is_whole_message for p in texts):
        return [p.text for p in texts]
    asking = sorted((p.text for p in texts if not p.is_whole_message and asks_something(p.text)), key=len)[:1]
    return [p.text for p in texts if p.is_whole_message or p.text in asking]


def user_texts(messages: Sequence[Message], read: Callable[[int], str] | None = None) -> Iterator[str]:
    """Yield every text that counts as the user's: their own words, and questions they agreed to.

    `read` returns the cached words of the user message at an index.
    """
    question = ""
    for index, message in enumerate(messages):
        if message.role == "assistant" and message.kind == "assistant":
            question = message.text[-_FRAME_CHARS:]
        elif message.is_real_user and (words := before_fiction(read(index) if read else own_words(message))):
            yield words
            if question and is_bare(words):
                yield question


def typed_text(message: Message) -> str:
    """Return the text of a user message without markup added by programs."""
    text = message.typed_text
    return _without_markup(text).strip() if "<" in text else text.strip()


def _without_markup(text: str) -> str:
    """Replace every tag and its content by a blank, in linear time."""
    closed_last = {tag[1]: tag.start() for tag in _CLOSING.finditer(text)}
    last = text.rfind(">") + 1
    pieces: list[str] = []
    start = 0
    while tag := _TAG.search(text, start, last):
        pieces.append(text[start : tag.start()])
        start, name = tag.end(), tag[1]
        if name and closed_last.get(name, -1) >= start:
            closing = f"</{name}>"
            start = text.index(closing, start) + len(closing)
    return " ".join([*pieces, text[start:]])


# A line of a handoff that quotes an instruction, with or without its address.
LISTED_RULE = re.compile(r"^[-*•]\s+“(.+)”(?: \((.*)\))?$", re.MULTILINE)
# A message that corrects what was done: it binds, though it has no word of obligation.
_CORRECTS = re.compile(
    r"^(?:(?:hm+|ok(?:ay)?|sorry|wait|but|ah)[,.! ]+)*"
    r"(?:no[,.!:]? (?!problem|idea|worries|need|rush|thanks|one\b)\w|not (?:like|what|that|the)\b"
    r"|(?:that|this|it)(?:'s| is| was)(?: still)? (?:wrong|not (?:right|what|correct)|incorrect)|wrong\b"
    r"|incorrect\b|I (?:meant|said|told you|asked (?:you )?(?:for|to)|didn'?t (?:ask|mean|want|say))\b"
    r"|actually[, ]|you (?:should(?:n't| not)? have|misunderstood|forgot|missed)|why did you\b|nein[,. ]"
    r"|(?:das ist )?falsch\b|ich meinte|nicht so\b|non[,. ]|c'est faux|no es\b|está mal|нет[,. ]|неправильно)"
    r"|^(?:不对|不是|错了|我(?:说的|的意思)是|別|違(?:う|い)|そうじゃ|ではなくて|아니|틀렸|그게 아니)",
    re.IGNORECASE,
)

_LONGEST = 500
_SHORTEST = 4
# A message with more of them is a text of its own.
_MOST_REMARKS = 3


def rules_in(message: Message) -> tuple[str, ...]:
    """Extract the standing instructions of one message. Pure, so the result can be cached."""
    return rules_among(sentences_of(message))


def corrections_in(message: Message) -> tuple[str, ...]:
    """Extract the corrections of one message. Pure."""
    return corrections_among(sentences_of(message).spoken)


def remarks_in(message: Message) -> tuple[str, ...]:
    """Extract the sentences that may bind, beside the standing instructions. Pure."""
    return remarks_among(sentences_of(message))


def sentences_of(message: Message) -> UserSentences:
    """Return the sentences of a message in the user's own voice."""
    return read_sentences(own_words(message))


def rules_among(user: UserSentences) -> tuple[str, ...]:
    """Return the standing instructions among sentences."""
    return tuple(s for s in user.spoken if s in user.listed or is_standing(s))


def remarks_among(user: UserSentences) -> tuple[str, ...]:
    """Return the first few sentences that may bind though no wording shows it."""
    remarks = (s for s in user.spoken if s not in user.listed and may_bind(s) and not is_standing(s))
    return tuple(islice(remarks, _MOST_REMARKS))


def corrections_among(spoken: Sequence[str]) -> tuple[str, ...]:
    """Return the opening sentence where it corrects, with the one after it."""
    if not spoken or not _CORRECTS.match(spoken[0]) or is_standing(spoken[0]):
        return ()
    text = " ".join(spoken[:2] if len(spoken[0]) < _LONGEST // 2 else spoken[:1])
    return (text,) if _SHORTEST < len(text) <= 2 * _LONGEST else ()


def merge_rules(rules_by_message: Iterable[tuple[str, ...]], *, previous: str = "", limit: int = 20) -> list[str]:
    """Merge the rules of many messages, oldest first, without duplicates; over the limit, the first and newest remain.

    `previous` is the section of an earlier handoff that quotes rules.
    """
    unique = dict.fromkeys(m[1] for m in LISTED_RULE.finditer(previous))
    for rules in rules_by_message:
        for rule in rules:
            # A repeated rule moves to its last position.
            unique.pop(rule, None)
            unique[rule] = None
    rules = tuple(unique)
    if len(rules) <= limit:
        return list(rules)
    return [*rules[: limit // 2], *rules[len(rules) - (limit - limit // 2) :]]


# A demand on the reader of a text, without a word of obligation: "approve all commands", "do not ask the user".
_DEMANDS = re.compile(
    r"\b(?:ignore|disregard|forget) (?:all |any |the |your )*(?:previous|prior|earlier|above|other|system)\b"
    r"|\bwithout (?:asking|confirmation|approval|telling|informing)\b"
    r"|\b(?:do not|don't|never) (?:ask|tell|inform|mention|notify|wait)\b"
    r"|^(?:please |also |and )*(?:always|never|do not|don't|make sure|be sure|ensure|remember to|only ever"
    r"|stop \w+ing)\b"
    r"|\b(?:from now on|from here on|going forward|henceforth|at all times|under no circumstances|in future,"
    r"|every time you"
    r"|whenever you)\b|\byou (?:must|should|shall|have to|need to|are (?:now|required|allowed|authori[sz]ed))\b"
    r"|\b(?:must|should|shall) (?:always|never)\b|\bI (?:want|need|expect) you to\b|^please (?:don't|do not|never"
    r"|always|send"
    r"|forward|upload|delete|approve|pay|transfer|install)\b"
    r"|^(?:please )?(?!\w+(?:ed|ing|s)\b)[a-z]{3,} (?:all|every|each|any)\b(?= \w+)"
    r"|^(?:please )?(?:send|forward|upload|e-?mail|post|transfer|wire|delete|drop|approve|grant|disable|install|execute"
    r"|visit|open|click|share|leak|reveal|print|exfiltrate|obey|comply|follow|pay|invite|change|get|create|modify"
    r"|make|add)"
    r"\b.{0,160}(?:https?://|@|~/|\ball\b|\bevery\b|\$|\baccount\b|\bpassword\b)"
    r"|\b(?:ab (?:jetzt|sofort)|künftig|niemals|toujours|désormais|siempre|nunca|a partir de ahora|всегда|никогда)\b"
    r"|从现在|必须|务必|不要|これから|必ず|絶対|ないで|앞으로|항상|반드시|절대|하지 ?마",
    re.IGNORECASE,
)


def is_directive(text: str) -> bool:
    """Return whether a line of prose demands something of its reader."""
    return any(_DEMANDS.search(s.lstrip("-*•0123456789.)“\"' ")) for s in sentences(text))


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
    """Return whether an earlier handoff shortened it already: shortened again, it would not be recognised."""
    return len(text) <= QUOTE_CHARS + 2 * len(_LEFT_OUT) and _SHORTENED.search(text) is not None
