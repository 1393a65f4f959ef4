"""Extract the text a user typed themselves, without quotes and pastes; detect small talk."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from perdure.core.messages import SUMMARY_OPENINGS, Message


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


# The end of a line that introduces pasted text: "summarise this mail:", "here is the log:".
_TEXT = (
    r"(?:e-?mails?|mails?|messages?|letters?|texts?|articles?|documents?|pages?|websites?|posts?|threads?|tickets?"
    r"|reports?|reviews?|logs?|outputs?|tracebacks?|transcripts?|chats?|conversations?|readme|snippets?|diffs?"
    r"|prompts?|contracts?|paragraphs?|quotes?|poems?|stor(?:y|ies)|nachricht|dokument|artikel|seite|brief|courriel"
    r"|texte|correo|mensaje|texto|письмо|текст)"
)
_TREAT = (
    r"(?:summari[sz]e|sum up|translate|proof-?read|paraphrase|rewrite|rephrase|analy[sz]e|explain|classify|extract"
    r"|shorten|reply to|respond to|fasse|übersetze|résume|traduis|resume|traduce|riassumi|traduci|переведи)"
)
_INTRODUCES = re.compile(
    rf"\b{_TREAT}\b|\b(?:this|these|following|below|here (?:is|are)|here's|attached|got|received)\b.*\b{_TEXT}\b"
    rf"|\b{_TEXT}\b.{{0,30}}\b(?:says?|said|reads?|wrote)\b|总结|翻译|以下|如下|要約|翻訳|次の|요약|번역|다음",
    re.IGNORECASE,
)
# The same with the pasted text on the same line: "summarise this: …".
_INTRODUCES_INLINE = re.compile(
    rf"\b{_TREAT}\b[^:：\n]{{0,80}}\b(?:this|these|that|following|below)\b[^:：\n]{{0,60}}[:：]\s*(?=\S)",
    re.IGNORECASE,
)
_MAIL = re.compile(
    r"^(?:From|Von|De|От|发件人|差出人)[:：] ?\S|^-{2,} ?(?:Original Message|Forwarded message|Ursprüngliche Nachricht)"
    r"|^(?:On|Am|Le|El) .{4,120}(?:wrote|schrieb|a écrit|escribió)\b.{0,20}[:：]\s*$"
    r"|^(?:Subject|Betreff|Objet|Asunto)[:：] ?\S",
    re.IGNORECASE,
)
# A sentence that announces a paste without a colon: "Below is the README.", "I'll paste it here".
_HANDS_OVER = re.compile(
    r"\b(?:below (?:is|are)|here (?:is|are|comes)|here's|I(?:'ll| will|'m going to) paste|pasting|pasted below)\b"
    rf".*\b{_TEXT}\b[^?]*$",
    re.IGNORECASE,
)
# Lines of a log, a transcript or a machine: `[SYSTEM] …`, `System: …`, `12:04 bob: …`, `+ added`, `{"json": …`.
_LABELLED = re.compile(
    r"^\s*(?:\[[A-Z][A-Z _-]{2,20}\]|(?:system|assistant|user|human|tool|admin|developer)\s*[:：>]"
    r"|\[?\d{1,2}:\d{2}(?::\d{2})?\]?\s+\S+|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|[{}\[\]]|[+-]{1,3}(?! )\S"
    r"|@@ |//|/\*|<!--|#!)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_RULE = re.compile(r"^\s*(?:[-=*_#~]{3,}|[-=]{2,} .{0,60} [-=]{2,}|\"\"\"|''')\s*$")
_QUOTED = re.compile(r"“[^”]{60,}”|„[^“”]{20,}[“”]|\"[^\"]{120,}\"|«[^»]{20,}»|「[^」]{60,}」|『[^』]{60,}』")
# Markup that programs put into user messages. The first group is a bare opening tag, removed with its content.
_TAG = re.compile(r"<([a-z][\w-]*)>|<[/a-z][^>]*>")
_CLOSING = re.compile(r"</([a-z][\w-]*)>")
_LONGEST_INTRODUCTION = 300
# Of a long message without markers only the beginning and the end count as the user's own.
_OWN_CHARS = 4_000
_FRAME_CHARS = 1_000


def own_words(message: Message) -> str:
    """The text the user typed themselves; "" for messages of other roles."""
    if not message.is_real_user:
        return ""
    text = typed_text(message)
    text = text if len(text) <= _OWN_CHARS else f"{text[:_FRAME_CHARS]}\n{text[-_FRAME_CHARS:]}"
    return _QUOTED.sub(" ", "\n".join(_own_lines(text))).strip()


def user_texts(messages: Sequence[Message]) -> Iterator[str]:
    """Yield every text that counts as the user's: their own words, and questions they agreed to."""
    question = ""
    for message in messages:
        if message.role == "assistant" and message.kind == "assistant":
            question = message.text[-_FRAME_CHARS:]
        elif words := own_words(message):
            yield words
            if question and is_bare(words):
                yield question


def _own_lines(text: str) -> Iterator[str]:
    is_fenced = is_ruled = is_introduced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            is_fenced = not is_fenced
            continue
        if not is_fenced and _RULE.match(line):
            is_ruled = not is_ruled
            continue
        if is_fenced or is_ruled or line.lstrip().startswith((">", "|")):
            is_introduced = False  # the pasted text is delimited: what follows it is typed again
            continue
        if is_introduced and line.strip():
            return
        if line.startswith(("    ", "\t")) or _LABELLED.match(line):
            continue
        if line.startswith(SUMMARY_OPENINGS) or _MAIL.match(line[:_LONGEST_INTRODUCTION].lstrip()):
            return
        if inline := _INTRODUCES_INLINE.search(line, 0, 2 * _LONGEST_INTRODUCTION):
            yield line[: inline.end()]
            return
        yield line
        tail = line.rstrip()[-_LONGEST_INTRODUCTION:]
        has_colon = tail.endswith((":", "："))
        is_introduced = bool((has_colon and _INTRODUCES.search(tail)) or _HANDS_OVER.search(tail))


def typed_text(message: Message) -> str:
    """The text of a user message without markup added by programs."""
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
