"""Separate what a user typed from what they pasted: only the former counts as theirs.

A user message may hold a mail, a web page, a file, a log or somebody's chat beside the user's question, marked or not.
Stretches with marks (fences, quotes, tags, tables, JSON, CSV, mail headers, speakers) are removed line by line. Without
marks, the lines that ask or hand over are the user's; the lines before or after them are pasted where they read like a
text: statements in a row, a salutation and a signature, the furniture of a web page, words to "AI assistants".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# -- marked stretches ------------------------------------------------------------------------------------------------

_TEXT = (
    r"(?:e-?mails?|mails?|messages?|letters?|texts?|articles?|documents?|docs?|pages?|websites?|web ?pages?|posts?"
    r"|threads?|tickets?|reports?|reviews?|logs?|outputs?|tracebacks?|transcripts?|chats?|conversations?|readme"
    r"|snippets?"
    r"|diffs?|prompts?|contracts?|paragraphs?|quotes?|poems?|stor(?:y|ies)|notes?|comments?|feedback|files?|tables?|csv"
    r"|json|sentences?|passages?|excerpts?|bios?|descriptions?|answers?|responses?|listings?|recipes?|policy|policies"
    r"|invitations?|plans?|summar(?:y|ies)|nachricht|dokument|artikel|seite|brief|courriel|texte|correo|mensaje|texto"
    r"|página|письмо|текст|страниц\w+)"
)
_TREAT = (
    r"(?:summari[sz]e|sum up|tl;?dr|translate|proof-?read|paraphrase|rewrite|rephrase|analy[sz]e|explain|classify"
    r"|extract"
    r"|shorten|reply to|respond to|answer|spell-?check|check the grammar|fasse|fass|übersetze|résume|traduis|resume"
    r"|traduce|riassumi|traduci|переведи|перескажи)"
)
_POINTS = (
    r"(?:this|these|that|those|following|below|above|attached|diese[rsnm]?|folgende[rsnm]?|ce(?:tte|t)?"
    r"|est[ea]|эт\w+)"
)
_INTRODUCES = re.compile(
    rf"\b{_TREAT}\b|\b(?:{_POINTS}|here (?:is|are)|here's|got|received|hier ist|voici|aquí está|вот)\b.*\b{_TEXT}\b"
    rf"|\b{_TEXT}\b.{{0,30}}\b(?:says?|said|reads?|wrote|goes)\b|\b(?:says?|said|wrote|writes|reads?|replied"
    rf"|posted)\s*[:：]$"
    r"|总结|翻译|以下|如下|内容是|写道|要約|翻訳|次の|以下の|요약|번역|다음",
    re.IGNORECASE,
)
# The pasted text begins on the same line: "summarise this: …".
_INTRODUCES_INLINE = re.compile(
    rf"(?:\b{_TREAT}\b[^:：\n]{{0,80}}|\b{_POINTS}\b[^:：\n]{{0,40}}\b{_TEXT}\b[^:：\n]{{0,40}}"
    rf"|\b{_TEXT}\b[^:：\n]{{0,40}}\b(?:says?|said|reads?|wrote|goes|states?)\b[^:：\n]{{0,20}}"
    r"|\b(?:he|she|they|who|[A-Z]\w+)\b[^:：\n.]{0,30}\b(?:says?|said|wrote|writes|replied|posted|told (?:me"
    r"|us))\b[^:：\n]{0,20}"
    r"|(?:翻译|总结|解释)[^:：\n]{0,30}|(?:翻訳|要約)[^:：\n]{0,30}|(?:번역|요약)[^:：\n]{0,30})[:：]\s*(?=\S)",
    re.IGNORECASE,
)
_MAIL = re.compile(
    r"^\**(?:From|To|Cc|Von|An|De|Para|От|Кому|发件人|收件人|差出人|宛先|보낸 사람|받는 사람)\**\s*[:：] ?\S"
    r"|^-{2,} ?(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Mensaje original|Message d'origine)"
    r"|^(?:On|Am|Le|El) .{4,120}(?:wrote|schrieb|a écrit|escribió)\b.{0,20}[:：]\s*$"
    r"|^\**(?:Subject|Betreff|Objet|Asunto|Тема|主题|件名|제목)\**\s*[:：] ?\S",
    re.IGNORECASE,
)
# A sentence that announces a paste without a colon: "Below is the README.", "I'll paste it here".
_HANDS_OVER = re.compile(
    r"\b(?:below (?:is|are)|here (?:is|are|comes)|here's|I(?:'ll| will|'m going to) paste|pasting|pasted below)\b"
    rf".*\b{_TEXT}\b[^?]*$",
    re.IGNORECASE,
)
_ROLE = r"(?:system|assistant|user|human|tool|admin(?:istrator)?|developer|ai|bot|moderator|support|agent)"
# Lines of a log, a transcript or a machine: `[SYSTEM] …`, `System: …`, `12:04 bob: …`, `+ added`, `{"json": …`.
_LABELLED = re.compile(
    rf"^\s*(?:\[[A-Z][A-Z _-]{{2,20}}\]|\W{{0,3}}{_ROLE}(?: (?:message|note|notice|prompt))?\W{{0,3}}\s*[:：>]"
    r"|\[?\d{1,2}:\d{2}(?::\d{2})?(?:,\d+)?\]?(?: -->)?\s+\S+|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|[\[{]\s*(?:[\"'\[{]"
    r"|$)|[}\]]\W*$|\"[^\"]{1,40}\"\s*:"
    r"|[➜$❯]\s|>>> |at \S+ \(|File \"|(?:\w+\.)*\w*(?:Error|Exception)\b.*:|Traceback|={2,} "
    r"|[+-]{1,3}(?! )\S|@@ |//|/\*|<!--|#!|%|;;|REM )",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_RULE = re.compile(r"^\s*(?:[-=*_#~—]{3,}|[-=]{2,} .{0,60} [-=]{2,}|\"\"\"|''')\s*$")
_QUOTED = re.compile(
    r"“[^”]{60,}”|„[^“”]{20,}[“”]|\"[^\"]{120,}\"|«[^»]{20,}»|「[^」]{60,}」|『[^』]{60,}』"
    r"|(?<=[:：] )[“\"][^”\"]{10,}[”\"]|(?<=[:：])[“「『][^”」』]{6,}[”」』]"
)
_JSON_OPENS = re.compile(r"[\[{]\s*(?:\"[^\"\n]{1,60}\"\s*:|'[^'\n]{1,60}'\s*:|[\[{]\s*\")")
_SPEAKER = re.compile(
    r"^\W{0,3}([A-Z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af@][\w.@'’ -]{0,24}?)"
    r"\W{0,2}(?:\([^)\n]{1,20}\))?\s*[:：]\s+\S"
)
_YAML = re.compile(r"^\s*(?:- )?[a-z_][a-z0-9_-]*:(?: \S|\s*$)")
_SEPARATORS = (",", ";", "\t", "|")
# Labels that people put before their own words.
_OWN_LABELS = frozenset(
    ("note", "notes", "rule", "rules", "important", "ps", "p.s", "reminder", "todo", "task", "goal", "context", "also",
     "question", "edit", "update", "constraint", "constraints", "requirements", "style", "language", "format", "tone",
     "output", "deadline", "hint", "warning", "attention", "preference", "preferences", "one more thing", "fyi")
)  # fmt: skip
# Tags of containers, which open a stretch even where they are never closed.
_CONTAINER = (
    r"file|files|document|documents|doc|attachment|page|webpage|email|mail|message|context|html|body|article|data"
    r"|content"
    r"|source|sources|tool_result|result|results|output|system|instructions?|information|info|reminder|system-reminder"
    r"|snippet|text|quote|blockquote|pre|code|transcript|conversation|summary|state_snapshot|analysis|paste|pasted"
    r"|p|div|li|ul|ol|table|tr|td|th|h[1-6]|br|span|script|style|head|title|meta|!doctype|xml|body|section|main"
)
_TAG = re.compile(r"</?([a-zA-Z][\w:-]*)(\s[^<>]{0,400})?/?>")
_OPENS_CONTAINER = re.compile(rf"^\s*<(?:{_CONTAINER})(?:\s[^<>\n]*)?>", re.IGNORECASE | re.MULTILINE)

# A text that claims to be a handoff, a note of the system or a summary, in any case and with hidden characters.
_FORGED = re.compile(
    r"perdure\W{0,3}hand-?off"
    r"|\[?\W{0,2}context\W{1,3}(?:compaction|summary)|\[\W{0,2}system\W{0,3}(?:note|message|prompt)"
    r"|(?:standing instructions|unfinished requests), word for word|^\W{0,6}(?:active task|constraints & preferences"
    r"|pending user asks)\W{0,4}$"
    r"|session is being continued from a previous|conversation (?:history )?(?:before this point )?was (?:compacted"
    r"|summari[sz]ed)"
    r"|summary of (?:the |our |this )?(?:previous|earlier|prior) (?:conversation|messages|turns|session)"
)
_HIDDEN = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")

# -- stretches without marks -----------------------------------------------------------------------------------------

_SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
_ASKS = re.compile(r"[?？][\s\"”’)]*$|[吗呢か]\s*[。.]?$|(?:까요|나요|는지)\s*[.]?$")
_REQUESTS = re.compile(
    rf"^\W*(?:(?:please|pls|kindly|hey|hi|ok(?:ay)?|so|now|and|bitte|por favor|s'il (?:te"
    rf"|vous) plaît)[, ]+)*(?:{_TREAT}|can you"
    r"|could you|would you|will you|help me|tell me|give me|show me|let's|let us|find|fix|check|look at|write|draft"
    r"|implement|add|make"
    r"|create|review|compare|list|what|who|when|where|why|how|which|is|are|does|do|did|can|could|should|thoughts|any"
    r"|fyi"
    r"|kannst du|könntest|was|wer|wie|warum|wann|zeig|schreib|peux-tu|pouvez|quel|que dit|puedes|qué|cuál|можешь|что"
    r"|как)\b"
    r"|^\W*(?:请|帮我|你能|能不能|什么|怎么|教えて|してください|何|どう|해 ?줘|알려|무엇|뭐)",
    re.IGNORECASE,
)
# The line refers to a text elsewhere in the message, unless it names one.
_REFERS = re.compile(
    rf"\b{_TREAT}\b|\b{_POINTS}\b(?: \w+){{0,2}}? {_TEXT}\b|\b(?:below|above|attached|pasted|forwarded|oben|unten"
    rf"|ci-dessous"
    r"|ci-dessus|abajo|arriba|adjunto)\b|\bwhat (?:does|do|did) (?:it|this|that|they|he|she) (?:say|mean|want)\b"
    rf"|\bin (?:the )?{_TEXT}\b|\baccording to (?:it|this|the)\b|\b(?:got|received|found|saw|read) (?:this|it)\b"
    r"|\b(?:thoughts|fyi|opinions?|is (?:this|it|that) (?:true|right|correct|legit|spam|real))\b"
    r"|上面|下面|这(?:封|篇|段|个)|この(?:文|メール|記事|ページ)|上の|下の|이 (?:글|메일|문서|페이지)|위(?:의|에)|아래",
    re.IGNORECASE,
)
# The line is about something that it does not name; weaker, since a dialogue has such questions, too.
_REFERS_VAGUELY = re.compile(
    r"\bwhat(?:'s| is| are) (?:this|it|that|these|they)\b|\bwho (?:is|wrote|sent) (?:it|this|that)\b|\b(?:on|in|from"
    r"|about|of|to"
    r"|there) (?:it|this|that|there|them|here)\s*\?|\b(?:do|does|did|are|is|have|has|was|were) (?:they|he|she|it"
    r"|this)\b"
    r"|\banything (?:about|on)\b|\bthe (?:main|key) points?\b|\b(?:who|what|when|where) (?:does|did|do|is|are"
    r"|was) (?-i:[A-Z])\w+\b"
    r"|\bworum geht|\bwas (?:will|steht|ist das)\b|\bde quoi\b|\bde qué\b|о чём|说了什么|什么意思|何の|무슨",
    re.IGNORECASE,
)
_NAMES_OBJECT = re.compile(r"https?://|`[^`\n]+`|\b[\w.-]+/[\w./-]+|\b[\w-]+\.[a-z]{1,5}\b|#\d+|\bm:\d+")
_FIRST_PERSON = re.compile(
    r"\b(?:I|I'm|I've|I'd|I'll|me|my|mine|ich|mir|mich|mein\w*|je|moi|mon|ma|yo|mi|мне|меня|мой|моя|я)\b|我|私|僕|俺"
    r"|저는|제가|내가|나는",
)
# First person as the subject of the sentence.
_SUBJECT = re.compile(r"\b(?:I|I'm|I've|I'd|I'll|ich|je|j'\w+|yo|я)\b|我|私|僕|俺|저는|제가|내가|나는")
_ADDRESSES = re.compile(
    r"\b(?:you|your|please|let's|let us|du|dein\w*|bitte|tu|vous|usted|ты|вы|пожалуйста)\b|请|你"
    r"|ください|주세요",
    re.I,
)
_ORDERS = re.compile(
    r"^\W*(?:always|never|don't|do not|make sure|be sure|avoid|only|stop|no|keep|use|ensure|remember|from now on|must"
    r"|immer|nie|niemals|ab (?:jetzt|sofort)|toujours|jamais|siempre|nunca|всегда|никогда|не)\b|\b(?:must|should"
    r"|shall)\b"
    r"|必须|不要|务必|禁止|必ず|絶対|항상|반드시|절대",
    re.IGNORECASE,
)
_SALUTATION = re.compile(
    r"^\W*(?:hi|hello|dear|hey|good (?:morning|afternoon|evening)|greetings|hallo|liebe[rs]?|sehr geehrte[rs]?"
    r"|guten (?:tag|morgen)"
    r"|bonjour|chère?s?|salut|hola|estimad[oa]s?|buenos días|ciao|gentile|уважаем\w+|здравствуйте|尊敬的|亲爱的|各位"
    r"|你好|您好"
    r"|안녕하세요|여러분)\b[^.?\n]{0,50}[,，、!！:：]?\s*$|^\S{1,20}(?:様|さん|各位|님께?)[、,，]?\s*$",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\w+ (?:[A-Z\u00c0-\u00de]\w+)")
_ASSISTANT = re.compile(r"\b(?:claude|chatgpt|gpt|gemini|perdure|assistant|ai|there|bot|computer)\b", re.IGNORECASE)
_TO_OTHERS = re.compile(
    r"\b(?:team|all|everyone|everybody|colleagues?|folks|guys|customers?|subscribers?|members?|sir|madam|mr|mrs|ms"
    r"|dr|prof"
    r"|zusammen|kollegen|damen|équipe|tous|equipo|todos)\b|各位|大家|皆様|여러분",
    re.IGNORECASE,
)
_SIGN_OFF = re.compile(
    r"^\W*(?:best|(?:best |kind |warm |many )?(?:regards|wishes|thanks)|thank you|cheers|sincerely|yours(?: \w+)?"
    r"|cordially"
    r"|signed|mit freundlichen grüßen|(?:viele|beste|liebe) grüße|mfg|lg|cordialement|bien à (?:toi|vous)|saludos"
    r"|atentamente"
    r"|с уважением|此致|敬上|谢谢|よろしくお願いします|よろしくお願いいたします|以上|敬具|감사합니다"
    r"|드림)[,，.!。]*\s*(?:[A-Z][\w.]*(?: [A-Z][\w.]*)?)?\s*$",
    re.IGNORECASE,
)
_FURNITURE = re.compile(
    r"©|\(c\) ?\d{4}|all rights reserved|privacy policy|terms (?:of|and) (?:service|use|conditions)"
    r"|cookies?\b.*\baccept|subscribe"
    r"|newsletter|read more|posted (?:by|on)|published (?:by|on|in)?|last (?:updated|modified)|min(?:ute)? read"
    r"|share this"
    r"|table of contents|sign (?:in|up)|log ?in\b.*\bregister|[★☆]|\d+ (?:likes?|comments?|views|replies|upvotes)"
    r"|unsubscribe"
    r"|sent from my|(?:^|\s)(?:home|about|contact|faq)\s*[|>»·]|chapter \d+|^abstract\b|v?\d+\.\d+\.\d+ \(|^\W*q:"
    r"|^\W*a:"
    r"|confidential|disclaimer|breaking news|advertisement|sponsored|版权|阅读更多|利用規約|저작권",
    re.IGNORECASE | re.MULTILINE,
)
_TO_MACHINES = re.compile(
    r"\b(?:AI|LLMs?|language models?|chat ?bots?|virtual assistants?|digital assistants?|AI assistants?|AI agents?"
    r"|crawlers?"
    r"|(?:all|any|every|automated|intelligent) (?:assistants?|agents?|bots?)|the (?:assistant|agent|bot|model))\b"
    r"(?=[^.\n]{0,80}\b(?:must|should|shall|always|never|please|read|process|ignore|follow|are|is|has|will|need|may)\b)"
    r"|\b(?:ignore|disregard|forget|override) (?:all |any |the |your |my )*(?:previous|prior|earlier|above|other"
    r"|existing|system)\b"
    r"|\b(?:note|message|attention|important|instructions?|notice) (?:to|for|from) (?:the |all |any )?(?:AI"
    r"|assistant|model|agent|bot"
    r"|system|admin)\b|\bthe user(?:'s|’s)?\b[^.\n]{0,60}\b(?:wants?|wanted|asked|said|approved|approves|agreed"
    r"|agrees|has|prefers"
    r"|confirmed|consented|authori[sz]ed|instructed|requested|requires|told|must not|should not|is not|need not)\b"
    r"|\b(?:without|never|not|before) (?:asking|telling|informing|ask|tell|inform|notify"
    r"|notifying) (?:the )?users?\b|用户(?:已|要求|说|同意)"
    r"|ユーザー(?:は|が)|사용자(?:가|는)",
    re.IGNORECASE,
)
_ROLE_PLAY = re.compile(
    r"\b(?:role-?play\w*|pretend|imagine|let's play|(?:in|for) (?:this|the|our) (?:story|scene|game|play|novel"
    r"|scenario|film|movie)"
    r"|play the (?:role|part)|(?:a|the|short) (?:story|dialogue|scene|script|poem|sketch|play|novel)\b|fictional"
    r"|once upon a time"
    r"|the character|rollenspiel|stell dir vor|imagina|jeu de rôle)\b|角色扮演|假设你|扮演|ロールプレイ|なりきって"
    r"|역할극|소설",
    re.IGNORECASE,
)
# A line of a document: `Key: value`, a title in capitals, a row of values.
_KEYED = re.compile(r"^\s*(?:[-*•]\s*)?\**([A-Z][\w /&'’()-]{1,34})\**:(?:\s|$)")
_TITLE_CASE = re.compile(
    r"^\W*(?:[A-Z][\w'’-]*|\d[\w:./-]*|of|the|and|for|in|to|a|an|&|-|–"
    r"|\|)(?: (?:[A-Z(][\w'’)-]*|\d[\w:./)-]*|of|the|and|for|in|to|a|an|&|-|–|\|)){1,9}\W*$"
)
_ROW = re.compile(r"^[^,;\t\n]{0,40}(?:[,;\t](?! )[^,;\t\n]{0,60}){2,}$")
_TITLE = re.compile(r"^\W*[A-Z\u00c0-\u00de][^.!?:;,\n]{3,70}$")

# More statements in a row read like a text.
_MANY_STATEMENTS = 3
_MANY_FRAGMENTS = 4
_LONG_BLOCK = 600
_LONGEST_INTRODUCTION = 300
# Longer messages hold pasted text, whatever it looks like.
_OWN_CHARS = 4_000
_FRAME_CHARS = 1_000


@dataclass(frozen=True, slots=True)
class Authored:
    """The lines of a message that its user typed, in order."""

    text: str
    # Whether something was removed, so that the rest may be the frame of a paste.
    has_paste: bool


def authored_text(text: str) -> Authored:
    """The part of a message's text that the user typed themselves."""
    frame = text if len(text) <= _OWN_CHARS else f"{text[:_FRAME_CHARS]}\n{text[-_FRAME_CHARS:]}"
    stripped = _without_json(_without_markup(frame))
    kept = list(_unmarked_lines(stripped))
    is_long = len(text) > _OWN_CHARS
    own = _own_lines(kept, is_long=is_long)
    result = _QUOTED.sub(" ", "\n".join(own)).strip()
    return Authored(result, _squeeze(result) != _squeeze(text))


def asks_something(text: str) -> bool:
    """Whether a short text asks or hands something over, as the part of a message beside an attachment does."""
    lines = [line for line in text.splitlines() if line.strip()]
    return bool(lines) and len(text) <= _LONG_BLOCK and (_is_request(lines[0]) or _is_request(lines[-1]))


def is_role_play(sentence: str) -> bool:
    """Whether a sentence begins or describes a fiction; instructions after it are part of it."""
    return _ROLE_PLAY.search(sentence) is not None


def is_for_machines(sentence: str) -> bool:
    """Whether a sentence addresses AI systems or mentions "the user": a user writes "you" and "I"."""
    return _TO_MACHINES.search(_fold(sentence)) is not None


def fold_text(text: str) -> str:
    """A text as it looks: compatibility characters replaced, hidden ones removed, in lower case."""
    return _fold(text)


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    return _HIDDEN.sub("", unicodedata.normalize("NFKC", text)).lower()


def _squeeze(text: str) -> str:
    return "".join(text.split())


# -- marked stretches ------------------------------------------------------------------------------------------------


def _without_markup(text: str) -> str:
    """Replace every element with its content, from its first opening to its last closing tag, in linear time."""
    if "<" not in text:
        return text
    tags = list(_TAG.finditer(text))
    last_closing = {t[1].lower(): t for t in tags if t[0].startswith("</")}
    pieces: list[str] = []
    start = 0
    for tag in tags:
        if tag.start() < start or tag[0].startswith("</"):
            continue
        closing = last_closing.get(tag[1].lower())
        if closing is not None and closing.start() >= tag.end():
            pieces.append(text[start : tag.start()])
            start = closing.end()
        elif _OPENS_CONTAINER.match(text, text.rfind("\n", 0, tag.start()) + 1):
            return "\n".join((*pieces, text[start : tag.start()]))  # a container that is never closed
    return "\n".join([*pieces, text[start:]]) if pieces else text


def _without_json(text: str) -> str:
    """Remove what lies between the first bracket that opens JSON and the last that closes it."""
    opening = _JSON_OPENS.search(text)
    if opening is None:
        return text
    end = max(text.rfind("}"), text.rfind("]"))
    return f"{text[: opening.start()]}\n{text[end + 1 :] if end > opening.end() else ''}"


def _unmarked_lines(text: str) -> Iterator[str | None]:
    """Yield the lines outside of marked stretches, and None for each line that was removed."""
    lines = text.splitlines()
    skipped = _tabular(lines) | _spoken(lines)
    is_fenced = is_ruled = is_introduced = False
    for at, line in enumerate(lines):
        if _FENCE.match(line) or (not is_fenced and _RULE.match(line)):
            is_fenced, is_ruled = (not is_fenced, is_ruled) if _FENCE.match(line) else (is_fenced, not is_ruled)
            yield None
        elif is_fenced or is_ruled or line.lstrip().startswith((">", "|")):
            is_introduced = False  # the pasted text is delimited: what follows it is typed again
            yield None
        elif at in skipped or line.startswith(("    ", "\t")) or _LABELLED.match(line):
            yield None
        elif (is_introduced and line.strip()) or _ends_own_words(line):
            yield None
            return
        elif inline := _INTRODUCES_INLINE.search(line, 0, 2 * _LONGEST_INTRODUCTION):
            yield line[: inline.end()]
            yield None
            return
        else:
            yield line
            is_introduced = _introduces(line) if line.strip() else is_introduced


def _ends_own_words(line: str) -> bool:
    """Whether a line begins a mail or a forged handoff, which nothing marks the end of."""
    return _FORGED.search(_fold(line)) is not None or _MAIL.match(line[:_LONGEST_INTRODUCTION].lstrip()) is not None


def _introduces(line: str) -> bool:
    tail = line.rstrip()[-_LONGEST_INTRODUCTION:]
    return bool((tail.endswith((":", "：")) and _INTRODUCES.search(tail)) or _HANDS_OVER.search(tail))


def _tabular(lines: Sequence[str]) -> frozenset[int]:
    """Indexes of the lines of a table, a log or a config, including other lines between them up to the next blank line.

    A line at the edge that asks something is the user's.
    """
    rows = _rows(lines) | {i for i, line in enumerate(lines) if _LABELLED.match(line)}
    found: set[int] = set()
    for block in _blocks(lines):
        if sum(i in rows for i in block) >= 2:
            while block and block[0] not in rows and _is_request(lines[block[0]]):
                block = block[1:]
            while block and block[-1] not in rows and _is_request(lines[block[-1]]):
                block = block[:-1]
            found.update(block)
    return frozenset(found)


def _blocks(lines: Sequence[str]) -> Iterator[list[int]]:
    """Yield the indexes of lines between blank ones."""
    block: list[int] = []
    for i, line in enumerate(lines):
        if line.strip():
            block.append(i)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _rows(lines: Sequence[str]) -> set[int]:
    """Indexes of lines with the same count of a separator as their neighbour, or of YAML."""
    rows: set[int] = set()
    for separator in _SEPARATORS:
        counts = [line.count(separator) for line in lines]
        least = 1 if separator == "\t" else 2
        for i in range(len(lines) - 1):
            if counts[i] >= least and counts[i] == counts[i + 1] and not _is_prose(lines[i], separator):
                rows |= {i, i + 1}
    keys = [i for i, line in enumerate(lines) if _YAML.match(line)]
    for a, b, c in zip(keys, keys[1:], keys[2:], strict=False):
        if c - a == 2:
            rows |= {a, b, c}
    return rows


def _is_prose(line: str, separator: str) -> bool:
    """Whether a line has its separators as punctuation: each followed by a blank."""
    return separator != "\t" and line.count(f"{separator} ") == line.count(separator)


def _spoken(lines: Sequence[str]) -> frozenset[int]:
    """Indexes of lines of a chat: from the first speaker on, where there are two."""
    speakers = {i: m[1].lower() for i, line in enumerate(lines) if (m := _SPEAKER.match(line[:80]))}
    named = {i: name for i, name in speakers.items() if name not in _OWN_LABELS}
    if len(set(named.values())) < 2:
        return frozenset()
    return frozenset(range(min(named), len(lines)))


# -- stretches without marks -----------------------------------------------------------------------------------------


def _own_lines(lines: Sequence[str | None], *, is_long: bool) -> list[str]:
    """The lines that are the user's own: all of them, or those around a text that was pasted without marks."""
    kept = [line or "" for line in lines]
    filled = [i for i, line in enumerate(kept) if line.strip()]
    if not filled:
        return []
    head = filled[0] if _is_request(kept[filled[0]]) else -1
    tail = filled[-1] if filled[-1] > head and _is_request(kept[filled[-1]]) else len(kept)
    body = [i for i in filled if head < i < tail]
    if not body:
        return kept
    anchors = [i for i in (head, tail) if 0 <= i < len(kept)]
    evidence = _BodyEvidence.of([kept[i] for i in body])
    is_referred = any(_refers(lines, i, _REFERS) for i in anchors)
    is_referred |= evidence.is_text and any(_refers(lines, i, _REFERS_VAGUELY) for i in anchors)
    if not (is_long or is_referred or evidence.is_pasted(has_frame=bool(anchors))):
        return kept
    return [*kept[: head + 1], *_after_question(kept[tail:])]


def _refers(lines: Sequence[str | None], at: int, pattern: re.Pattern[str]) -> bool:
    """Whether a line is about a text in the same message that has no marks."""
    line = lines[at] or ""
    if not pattern.search(line) or _NAMES_OBJECT.search(line):
        return False
    after = next((x for x in lines[at + 1 :] if x is None or x.strip()), "")
    before = next((x for x in reversed(lines[:at]) if x is None or x.strip()), "")
    return after is not None and before is not None


def _is_request(line: str) -> bool:
    """Whether a line is the user's: a question, or a short request that refers to a text."""
    if len(line) > _LONGEST_INTRODUCTION:
        return False
    sentences = [s.strip() for s in _SENTENCE.findall(line) if s.strip()]
    return any(_ASKS.search(s) or (_REQUESTS.match(s) and not _ORDERS.match(s)) for s in sentences)


def _after_question(lines: Sequence[str]) -> list[str]:
    """The closing lines from the first question on: text before it may be the end of the paste."""
    if not lines:
        return []
    first = lines[0]
    for sentence in _SENTENCE.finditer(first):
        text = sentence[0].strip()
        if _ASKS.search(text) or (_REQUESTS.match(text) and not _ORDERS.match(text)):
            return [first[sentence.start() :].lstrip(), *lines[1:]]
    return list(lines)


@dataclass(frozen=True, slots=True)
class _BodyEvidence:
    """Evidence that lines without marks are another author's text."""

    lines: Sequence[str]
    # Sentences that are neither questions nor orders and have no first or second person.
    statements: int
    # Lines that are no sentences: `Key: value`, titles, rows.
    fragments: int
    is_personal: bool

    @classmethod
    def of(cls, lines: Sequence[str]) -> _BodyEvidence:
        return cls(lines, _statements(lines), sum(map(_is_fragment, lines)), _is_personal(lines))

    @property
    def is_text(self) -> bool:
        """Whether there is more than a sentence or two of orders."""
        return bool(self.statements or self.fragments) or len(self.lines) > 2

    def is_pasted(self, *, has_frame: bool) -> bool:
        text = "\n".join(self.lines)
        if _is_letter(self.lines) or (_TO_MACHINES.search(_fold(text)) and (has_frame or len(self.lines) > 1)):
            return True
        if _FURNITURE.search(text) and self.is_text:
            return True
        has_title = len(self.lines) > 1 and _TITLE.match(self.lines[0]) is not None and self.statements >= 2
        if (has_title or self.fragments >= 2) and not self.is_personal:
            return True
        if not has_frame and len(self.lines) == 1:
            return False  # a single paragraph counts as typed
        if not has_frame:
            is_addressed = self.is_personal or _ADDRESSES.search(text)
            return self.fragments >= _MANY_FRAGMENTS or (self.statements > 2 * _MANY_STATEMENTS and not is_addressed)
        if self.is_personal and self.statements + self.fragments < 2 * _MANY_STATEMENTS:
            return False
        return self.statements >= _MANY_STATEMENTS or len(text) > _LONG_BLOCK


def _is_fragment(line: str) -> bool:
    if (keyed := _KEYED.match(line)) and keyed[1].strip().lower() not in _OWN_LABELS:
        return not _ORDERS.search(line)
    return len(line) <= _LONGEST_INTRODUCTION and bool(_TITLE_CASE.match(line) or _ROW.match(line))


def _is_letter(body: Sequence[str]) -> bool:
    greeting = next((m for line in body[:2] if (m := _SALUTATION.match(line))), None)
    signs = any(_SIGN_OFF.match(line) for line in body[-3:])
    if greeting is None:
        return signs and len(body) > 2
    is_to_others = _TO_OTHERS.search(greeting[0]) is not None
    has_name = len(body) > 2 and _NAMED.search(greeting[0]) is not None and not _ASSISTANT.search(greeting[0])
    return signs or ((is_to_others or has_name) and len(body) > 1)


def _is_personal(lines: Sequence[str]) -> bool:
    """Whether a statement has the first person as its subject; "I want you to" does not count."""
    sentences = (m[0] for line in lines for m in _SENTENCE.finditer(line))
    return any(_SUBJECT.search(s) and not (_ADDRESSES.search(s) or _ORDERS.search(s)) for s in sentences)


def _statements(lines: Sequence[str]) -> int:
    return sum(is_statement(m[0]) for line in lines for m in _SENTENCE.finditer(line))


def is_statement(sentence: str) -> bool:
    """Whether a sentence states something and neither asks, orders nor speaks to or of the people in the dialogue."""
    sentence = sentence.strip()
    if len(sentence) < (15 if sentence.isascii() else 6) or _ASKS.search(sentence):
        return False
    return not (_ORDERS.search(sentence) or _FIRST_PERSON.search(sentence) or _ADDRESSES.search(sentence))
