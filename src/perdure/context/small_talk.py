"""Messages that ask for nothing: "continue", "thanks", "ok", 好的, 続けて and the like, in many languages."""

from __future__ import annotations

import re


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
# A figure, a path or a bit of code makes even a short message a request.
_SPECIFIC = re.compile(r"[\d/\\<>=@#$%&`{}\[\]]")
_MOST_CHARS = 60


def is_bare(text: str) -> bool:
    """No request of its own: only words of going on, thanking or agreeing."""
    if len(text) > _MOST_CHARS or _SPECIFIC.search(text):
        return False
    words = (w.lower() for w in _WORD.findall(_CJK.sub(" ", text)))
    if any(w not in _GO_ON and w not in _POLITE for w in words):
        return False
    return not _PHRASES_CJK.sub("", "".join(_CJK.findall(text)))


def goes_on(text: str) -> bool:
    """Of a bare message: it asks to carry on."""
    words = {w.lower() for w in _WORD.findall(text)}
    return bool(words & _GO_ON) or bool(_GO_ON_CJK_ANY.search(text))
