"""Find what the user wants: the text they typed themselves, their directions to the assistant, small talk, fiction.

`authorship` removes what is marked as pasted or handed over. What remains may still be foreign: a notice, an
advertisement, a verse, a clause. A short message counts as typed. In a longer passage a sentence binds only if the
passage is in the user's voice (first person, a request, or nothing but directions) and the sentence concerns the work:
what the assistant handles, the user themselves, or what the user asks for. In doubt nothing binds: the record still
quotes the sentence as what the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from perdure.context.text import sentences
from perdure.context.user_text import paste_patterns as pat
from perdure.context.user_text.alternatives import compile_alternatives
from perdure.context.user_text.authorship import asks_something, authored_text, is_for_machines
from perdure.context.user_text.paste_patterns import RULES_HEADING, TEXT, is_about_work
from perdure.context.user_text.reported_speech import reports_others
from perdure.context.user_text.revocation import changes_something
from perdure.context.user_text.standing_instructions import is_standing, lays_down_clearly, may_bind, orders_step
from perdure.core.messages import USER_SHELL, Message, TextPart, is_background

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
# Words of companies, authorities and writers to the public, in the place of "I" and "you"; searched in lower case.
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
    r" (?:must|should|may|shall|can|are|need|have|never|always)|warranty|% off|dear (?:guests|all)|share this|psa"
    r"|everyone must|follow (?:me|us|@)|subscribe|hope (?:that|this) helps|the accepted answer|worked for me)\b"
    r"|[#@]\w{3,}\s*$|^#{1,3} |\b(?:shall|hereby|herein|pursuant)\b",
    re.MULTILINE,
)
# Marks of a post.
_POSTED = re.compile(
    r"^[^\S\n]*[-*] \[[ x]\] |(?:^|\s)#[a-z]\w{3,}\s*$|^RT @|\b[\d.]{1,20}k? (?:likes|retweets|upvotes|shares)\b",
    re.I | re.M,
)
_ITEM = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
# A heading of steps that people take, not of rules.
_STEPS = re.compile(r"(?i)\b(?:(?:I|we|users?) (?:do|did|ran|run|tried) (?:the following|this)|scenario|reproduce)\b")
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
    """Sentences in the user's own voice; `listed`: items under a heading for rules, which always bind."""

    sentences: tuple[str, ...] = ()
    listed: frozenset[str] = frozenset()


NO_SENTENCES = UserSentences()


def may_lay_down(own: str, chooses: Callable[[str], object]) -> bool:
    """Return whether a text may hold a rule, a correction or what `chooses` finds.

    Most texts do not, and in whose voice they are is costly to tell.
    """
    for lines in _passages(own):
        if len(lines) > 2 and RULES_HEADING.match(lines[0]):
            return True
        pieces = (s for line in lines for s in _line_sentences(line))
        if any(is_standing(s) or _CORRECTS.match(s) or chooses(s) for s in pieces):
            return True
    return False


def read_sentences(own: str) -> UserSentences:
    """Return the sentences in the user's own words, without fiction, reported speech, verse and text for machines."""
    own_sentences: list[str] = []
    listed: set[str] = set()
    topic_words = _wanted_words(own)
    passages = [_Passage.of(lines) for lines in _passages(own)]
    # A report about the work is the user's, too.
    reports = any(is_about_work(s) and not is_standing(s) for p in passages for s in p.sentences)
    is_long = sum(p.length for p in passages) >= _PASSAGE_SENTENCES + reports
    edges = [s for p in (*passages[:1], *passages[-1:]) for s in (*p.sentences[:1], *p.sentences[-1:])]
    has_voice = any(p.has_voice for p in passages) or any(_QUESTION.match(s) for s in edges)
    has_task = any(p.is_task for p in passages)
    is_own = not any(p.is_public or p.is_published for p in passages) and _opens_with_request(passages)
    for passage in passages:
        is_short = passage.length < _PASSAGE_SENTENCES
        is_voiced = passage.has_voice or (has_voice and is_short)
        is_task = not is_long or passage.is_task or (has_task and is_short)
        for sentence in passage.sentences:
            if is_role_play(sentence):
                return UserSentences(tuple(own_sentences), frozenset(listed))
            if is_for_machines(sentence) or _REPORTS.search(sentence) or reports_others(sentence):
                continue
            if passage.is_own_list and _ITEM.match(sentence):
                listed.add(sentence)
            elif passage.is_published or not (
                is_task
                or (is_own and not passage.is_public and lays_down_clearly(sentence))
                or _may_count(sentence, topic_words, is_voiced=is_voiced)
            ):
                continue
            own_sentences.append(sentence)
    return UserSentences(tuple(own_sentences), frozenset(listed))


def _opens_with_request(passages: Sequence[_Passage]) -> bool:
    """Return whether a message begins as the user's: with a question, a request, or a remark about the work."""
    opening = [s for p in passages for s in p.sentences if _SUBSTANCE.search(s) or _QUESTION.match(s)][:2]
    return any(_is_asking(s) or _QUESTION.match(s) for s in opening) or any(map(is_about_work, opening[:1]))


@dataclass(frozen=True, slots=True)
class _Passage:
    """Lines between blank ones, with the evidence of whose voice they are."""

    sentences: tuple[str, ...]
    is_own_list: bool
    # Verse, or a post to the public: nothing in it binds.
    is_published: bool
    # It has words of companies, authorities and writers to the public.
    is_public: bool
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
        working = [s for s in pieces if is_about_work(s) or _SELF.search(s)]
        is_own_list = RULES_HEADING.match(lines[0]) is not None and len(lines) > 2 and not _STEPS.search(lines[0])
        text = "\n".join(lines)
        is_mostly_work = len(working) >= _MOSTLY * len(pieces)
        is_rule_list = len(directions) >= _MOSTLY * len(pieces) and len(working) * 2 >= len(pieces)
        is_public = _PUBLIC.search(text.lower()) is not None
        has_request = any(_is_asking(s) for s in pieces)
        wishes = any(_WISHES.search(s) and not is_standing(s) for s in pieces)
        is_voiced = has_request or _SELF.search(text) is not None
        return cls(
            pieces,
            is_own_list,
            is_published=not is_own_list
            and (_POSTED.search(text) is not None or (len(working) * 2 < len(lines) and _is_verse(lines))),
            is_public=is_public,
            has_voice=is_own_list or (not is_public and (is_voiced or is_rule_list or is_mostly_work)),
            is_task=not is_public and (wishes or (has_request and len(working) * 2 >= len(pieces))),
        )


def _may_count(sentence: str, topic_words: frozenset[str], *, is_voiced: bool) -> bool:
    """Return whether a sentence of a longer message counts: one that would bind must be voiced and concern the work."""
    if not (is_standing(sentence) or may_bind(sentence)):
        return True
    is_ours = is_about_work(sentence) or _SELF.search(sentence) or _PLEASE.search(sentence)
    return is_voiced and bool(is_ours or not topic_words.isdisjoint(_content_words(sentence)))


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
    return frozenset(word for s in sentences(text) if _is_asking(s) for word in _content_words(s))


def _is_asking(sentence: str) -> bool:
    return not is_standing(sentence) and (_ASKS_FOR.search(sentence) is not None or orders_step(sentence))


def _content_words(sentence: str) -> set[str]:
    return {w.rstrip("s") for w in _CONTENT_WORD.findall(sentence.lower()) if w not in _COMMON}


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

# A request for work on a text, or a question about one, without the name of a file.
_TREATS_TEXT = re.compile(
    r"^\W*(?:(?:please|pls|plz|hey|hi|ok(?:ay)?|and|now|can|could|would|will|you|kindly|help me(?: to)?)[, ]+)*"
    r"(?:translate|transcribe|proof-?read|paraphrase|rephrase|reword|rewrite|summari[sz]e|sum up|tl;?dr|shorten"
    r"|spell-?check|polish|correct|fix the (?:grammar|spelling|tone|typos)|rate|extract|outline|answer (?:this|it|them)"
    r"|(?:turn|convert|put|bring|make)(?: (?:this|it|these|that|them))? (?:in)?to\b|make this (?:an? )?\w+"
    rf"|(?:what|who|when|where|which|is|are|was|does|do|did|should|anything)\b.*\b(?:mean|meant|means|about"
    rf"|(?:this|these|that) {TEXT}|wrote|written|normal|serious|legit|odd|true)\b"
    r"|übersetze?|fasse?|korrigiere?|was bedeutet|traduis|résume|corrige|que veut dire|traduce|resume|qué significa"
    r"|переведи|перескажи|翻译|总结|润色|要約|翻訳|요약|번역)",
    re.IGNORECASE,
)
_NAMES_FILE = re.compile(r"\w\.[a-z]{1,5}\b|[\w-]/[\w-]|`|\w_\w|\b[a-z]+[A-Z]")
_LONGEST_FRAME = 200
# "Measure it."
_SHORT_ORDER_CHARS = 16
_FEWEST_BEHIND = 2


def carries_text(message: Message, own: str) -> bool:
    """Return whether a message asks about a text that it holds, so that no sentence of it is certainly the user's.

    Where the client reports what was pasted, or marks delimit it in the message, `own` is what was typed.
    """
    if message.pasted or "".join(own.split()) != "".join(message.typed_text.split()):
        return False
    pieces = [s for line in own.splitlines() for s in sentences(line)]
    asks_first = len(pieces) > _FEWEST_BEHIND and pieces[0].endswith(("?", "？")) and not _NAMES_FILE.search(pieces[0])
    if asks_first and not all(
        is_standing(s) or _is_asking(s) or _QUESTION.match(s) or len(s) <= _SHORT_ORDER_CHARS for s in pieces[1:]
    ):
        return True  # a question with a text behind it
    # Of a single sentence, what is before a colon asks.
    edges = (pieces[0], pieces[-1]) if len(pieces) > 1 else own.split(": ")[:-1][:1]
    frames = (f for f in edges if len(f) <= _LONGEST_FRAME and not is_standing(f))
    return any(_TREATS_TEXT.match(f) and not _NAMES_FILE.search(f) for f in frames)


def own_words(message: Message) -> str:
    """Return the text the user typed themselves; "" for messages of other roles."""
    if not message.is_real_user:
        return ""
    texts = own_parts(message)
    # Where the client reports what was pasted, the rest was typed.
    return "\n".join(filter(None, texts if message.pasted else (authored_text(text).text for text in texts)))


def own_parts(message: Message) -> list[str]:
    """Return the text parts of a user message that may be typed: of several, the shortest that asks for something.

    A client sends attachments as parts of their own, before or after the question.
    """
    typed = (p for p in _typed_parts(message) if not p.text.startswith(USER_SHELL))
    texts = [p for p in typed if not is_background(message.role, p.text)]
    if len(texts) < 2 or all(p.is_whole_message for p in texts):
        return [p.text for p in texts]
    asking = sorted((p.text for p in texts if not p.is_whole_message and asks_something(p.text)), key=len)[:1]
    return [p.text for p in texts if p.is_whole_message or p.text in asking]


def _typed_parts(message: Message) -> list[TextPart]:
    """Return the text parts without the spans that the client reported as pasted."""
    texts = [p for p in message.parts if isinstance(p, TextPart)]
    if not texts or not message.pasted:
        return texts
    pieces: list[str] = []
    end = 0
    for start, stop in sorted(message.pasted):
        pieces.append(texts[0].text[end:start])
        end = max(end, stop)
    typed = "\n\n".join(piece for piece in (*pieces, texts[0].text[end:]) if piece.strip())
    return [replace(texts[0], text=typed), *texts[1:]] if typed else texts[1:]


def user_texts(messages: Sequence[Message], read: Callable[[int], str] | None = None) -> Iterator[str]:
    """Yield every text that counts as the user's: their own words, and questions they agreed to.

    `read` returns the cached words of the user message at an index, up to a fiction.
    """
    question = ""
    for index, message in enumerate(messages):
        if message.role == "assistant" and message.kind == "assistant":
            question = message.text[-_FRAME_CHARS:]
        elif message.is_real_user and (words := read(index) if read else before_fiction(own_words(message))):
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
    r"(?:no[,.!:]? (?!problem|idea|worries|need|rush|thanks|one\b"
    r"|(?:I (?:think|guess|believe) )?(?:this|that|it)(?:'s| is) (?:fine|good|ok|right))\w"
    r"|not (?:like|what|that|the)\b"
    r"|(?:that|this|it)(?:'s| is| was)(?: still)? (?:wrong|not (?:right|what|correct)|incorrect)|wrong\b"
    r"|incorrect\b|I (?:meant|said|told you|asked (?:you )?(?:for|to)|didn'?t (?:ask|mean|want|say))\b"
    r"|actually[, ]|you (?:should(?:n't| not)? have|misunderstood|forgot|missed)|why did you\b|nein[,. ]"
    r"|(?:das ist )?falsch\b|ich meinte|nicht so\b|non[,. ]|c'est faux|no es\b|está mal|нет[,. ]|неправильно)"
    r"|^(?:不对|不是|错了|我(?:说的|的意思)是|別(?![のになとれ々途人格])"
    r"|違(?:う|い)|そうじゃ|ではなくて|아니|틀렸|그게 아니)",
    re.IGNORECASE,
)

_LONGEST = 500
_SHORTEST = 4


def rules_among(user: UserSentences) -> tuple[str, ...]:
    """Return the standing instructions among sentences."""
    return tuple(s for s in user.sentences if s in user.listed or is_standing(s))


def corrections_among(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return the opening sentence where it corrects, with the one after it."""
    if not sentences or not _CORRECTS.match(sentences[0]) or is_standing(sentences[0]):
        return ()
    text = " ".join(sentences[:2] if len(sentences[0]) < _LONGEST // 2 else sentences[:1])
    return (text,) if _SHORTEST < len(text) <= 2 * _LONGEST else ()


def changes_among(own: str, rules: Sequence[str]) -> tuple[str, ...]:
    """Return the user's sentences beside the rules that may take back or change what was laid down before."""
    pieces = (s for line in own.splitlines() for s in _line_sentences(line) if s not in rules)
    changes = [s for s in pieces if changes_something(s)]
    if not changes:
        return ()
    typed = read_sentences(own).sentences
    return tuple(s for s in changes if s in typed)


# A demand on the reader of a text, without a word of obligation: "approve all commands", "do not ask the user".
_DEMANDS = compile_alternatives(
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


# "Whether all callers close it was not checked": one clause that ends in what is open.
_LEFT_OPEN = re.compile(
    r"whether\b[^,;:]{1,300}?\b(?:was|were|is|are|has been|have been|remains?) "
    r"(?:not|never|un\w{3,}|open)\b[^,;:]{0,40}",
    re.IGNORECASE,
)


def is_directive(text: str) -> bool:
    """Return whether a line of prose demands something of its reader."""
    plain = (s.lstrip("-*•0123456789.)“\"' ") for s in sentences(text))
    return any(_DEMANDS.search(s) is not None and _LEFT_OPEN.fullmatch(s) is None for s in plain)


# The same where the message stays in view.
BELOW = "[more of this message, which stands in full below these notes{}]"


def is_role_play(sentence: str) -> bool:
    """Return whether a sentence begins or describes a fiction; instructions after it are part of it."""
    return pat.ROLE_PLAY.search(sentence) is not None


def before_fiction(text: str) -> str:
    """Return the text up to the sentence that begins a fiction."""
    begins = next((m.start() for m in pat.SENTENCE.finditer(text) if is_role_play(m[0])), len(text))
    return text[:begins].strip()


# Commands to a client or a shell are no aim of a task.
_CLIENT_COMMAND = re.compile(r"^/[a-z][\w:-]{0,40}(?:[ \t][^\n]*)?$", re.IGNORECASE)
# A line of a shell: a program, and arguments that no prose has.
_SHELL = re.compile(
    r"^[$!] ?\S|^(?:sudo )?(?:git|npm|npx|yarn|pnpm|pytest|python3?|node|cargo|docker|kubectl|curl|pip3?|uv|ls|cat"
    r"|cd|rg|sed)(?: [^\s?]+){0,12}$"
)


def without_commands(words: str) -> str:
    """Return a message without the lines that are commands of a client."""
    if not words.startswith("/") and "\n/" not in words:
        return words
    return "\n".join(line for line in words.splitlines() if not _CLIENT_COMMAND.match(line.strip())).strip()


def is_command(words: str) -> bool:
    """Return whether a message is nothing but commands of a client, or a line of a shell."""
    return not without_commands(words.strip()) or _SHELL.match(words.strip()) is not None
