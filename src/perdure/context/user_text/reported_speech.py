"""Recognise what the user only reports: the words of others, or a supposition."""

from __future__ import annotations

import re

from perdure.context.user_text.alternatives import compile_alternatives

# Verbs of saying with another subject than the user, and sources; of a story also the frame.
_REPORTS = compile_alternatives(
    r"\baccording to\b|(?<!\bI )\b(?:says|claims?|claimed|insists?|insisted|asks?|asked|wonders?|wondered|thinks"
    r"|thought"
    r"|believes"
    r"|heard|wrote|writes|told|tells|announced) (?:\w+ )?(?:that|whether)\b"
    r"|(?<!\bI )(?<!\bwe )\b(?<!\bI just )(?:says|said|claims|wrote|writes|told (?:me|us)|tells (?:me|us)|asked whether"
    r"|announced|thinks|insists|recommends)\b"
    r"|\bI (?:read|hear|heard) (?!your|you\b)\w|\b(?:apparently|supposedly|rumou?r)\b|\bput this into\b"
    r"|\bused to (?:say|be)\b"
    r"|\b(?:suppose|supposing|imagine|assuming|hypothetically)\b|\bwhat if\b|\bthe rule was\b"
    r"|(?<!\bich )\b(?:sagt|sagte|meint|meinte|behauptet|behauptete|schreibt|schrieb)\b(?! ich)|\bangeblich\b"
    r"|\b(?:laut|gemäß) \w"
    r"|\bangenommen\b|\b(?:dit|disent|affirme|prétend|écrit|pense|disait) (?:qu|que\b)|\bdit qu['’]|\bselon\b"
    r"|\bsupposons\b"
    r"|\b(?:dice|dicen|dijo|afirma|opina|escribe|piensa) que\b|\bsegún\b|\bsupongamos\b"
    r"|\b(?:dice|dicono|sostiene) che\b|\bsecondo\b|\b(?:diz|disse|afirma) que\b|\b(?:говорит|сказал\w*|считает), что\b"
    r"|(?:同事|老板|客户|别人|有人|他|她|他们|供应商|网上|小[王李张])(?:跟我)?[说說認认]|听说|聽說|据说|據說|假设|假如|そうです|らしい"
    r"|と(?:言|い)って(?!おき|く)|によると|仮に|대요|래요|라고 (?:해|했|말)|다고 (?:해|했|말)",
    re.IGNORECASE,
)


def reports_others(sentence: str) -> bool:
    """Return whether a sentence reports the words of others, or supposes something."""
    return _REPORTS.search(sentence) is not None
