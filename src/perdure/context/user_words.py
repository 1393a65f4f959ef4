"""Extract the text a user typed themselves, without quotes and pastes; detect small talk."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from perdure.context.authorship import asks_something, authored_text, before_fiction
from perdure.core.messages import Message, TextPart, is_background


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
