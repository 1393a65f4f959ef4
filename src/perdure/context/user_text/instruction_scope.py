"""Determine the scope of an instruction: all later work, one piece of work, or only the step it is about."""

from __future__ import annotations

import re

from perdure.context.user_text.standing_instructions import is_particular

# A wish for a piece of work, or a property of one definite thing: "the button must be blue".
_ONE_TASK = re.compile(
    r"\bI(?:['’]d like| would like| want| need) (?:the|a|an|this|that|these|those|some)\b"
    r"|\b(?:I(?:['’]d| would) like (?:you )?to|I (?:want|need) (?:you )?to|we (?:should|need to|have to|could)"
    r"|let['’]?s|can you|could you)\s+(?:also |now |then |first )*"
    r"(?!(?:use|keep|avoid|stop|be|have|see|stay|stick|go|not|never|always|only)\b)\w+"
    r"|^\W*(?:and |also |but |then |for \w+ )*(?:the|this|that|a|an) [^.,;:]{2,50}? (?:must|should|needs? to|has to)"
    r" (?:be|have|show|say|read|look|open|contain|start|appear|link)\b"
    r"|(?:해|봐|려|워|꿔|쳐|켜|게)\s?(?:줘|주세요|주라)[.!~]*$|(?:てください|てほしい(?:です)?)[。！]*$|^(?:请|帮我)[^，。]{2,40}[。！]?$",
    re.IGNORECASE,
)
# The user's own errand ("I'd like to change my flight") and a permission: over with the request.
_OWN_WISH = re.compile(
    r"\bI(?:['’]d| would) like to "
    r"(?!(?:use|keep|avoid|stop|be|have|see|stay|stick|go|do|work|follow|not|never|always|only)\b)\w+"
    r"|\bI(?:['’]d| would) (?:like|prefer) (?:the|a|an|this|that(?! you\b)|these|those|to go with)\b"
    r"|^(?:(?:yes|yeah|ok(?:ay)?|sure|also|and|so|then)[,.! ]+)*you (?:can|may)\b"
    r"(?!.*\b(?:not|only|but|any|all|everything|without|whenever)\b)",
    re.IGNORECASE,
)
_WOULD_PREFER = re.compile(r"\bI(?:['’]d| would) (?:rather |also )?prefer\b", re.IGNORECASE)
# A word at the beginning that answers the message before.
_ANSWERS = re.compile(
    r"^(?:(?:\d+[.)]\s*)?(?:no+|nope|not really|yes|yeah|ok(?:ay)?|sure)\b[,.!:]*\s+)+(?=\w+\s\w)", re.IGNORECASE
)
_CODE = re.compile(r"`[^`]*`")
_QUANTITY = re.compile(r"(?i)\b(?:all|any)\b")
# Words of scope, of denial and of taste: a sentence with one of them may hold for all that follows.
_LASTING = re.compile(
    r"\b(?:always|never|every\w*|each|all|any\w*|whenever|from now|in (?:the )?future|going forward|next time|until"
    r"|unless|before|after|while|don['’]?t|do not|not|no|nothing|only|without|prefer\w*|rather|instead|style"
    r"|convention\w*|ever|english|german|french|spanish|language|short|brief|concise|ask me|call me|tell me"
    r"|answer\w*|repl(?:y|ies)|commit\w*|push\w*|tests? first|TDD|throughout|try to|remember)\b"
    r"|항상|앞으로|절대|반드시|매번|모든|마다|언제나|금지|꼭|한국어|영어|답변은|必ず|常に|今後|これから|毎回|絶対|だけ|のみ|ないで|前に|英語|日本語"
    r"|总是|始终|以后|每|所有|一律|只|不|别|都|必须|[中英日]文回",
    re.IGNORECASE,
)


# Words that make a sentence hold beyond its own request.
_ALWAYS = re.compile(
    r"\b(?:always|never|ever|every ?\w*|each|whenever|from now|from here on|henceforth|in (?:the )?future|going forward"
    r"|next time|at all times|under no circumstances|in general|as a rule|by default|prefer\w*|conventions?|remember"
    r"|immer|nie|niemals|jede[rsmn]?|künftig|grundsätzlich|ab (?:jetzt|sofort)|toujours|jamais|chaque|désormais|siempre"
    r"|nunca|cada|sempre|mai|ogni|всегда|никогда|кажд\w+|отныне|впредь)\b"
    r"|항상|앞으로|절대|반드시|매번|모든|마다|언제나|금지|꼭|必ず|常に|今後|これから|毎回|絶対|总是|始终|永远|以后|今后|每|所有"
    r"|一律|必须|禁止|不得|都要",
    re.IGNORECASE,
)
# Verbs of looking and telling: what is limited to them is the step at hand.
_LOOKING = (
    r"(?:validat\w*|check\w*|verif\w*|look\w*|review\w*|report\w*|tell|explain\w*|list|show|investigat\w*|analy[sz]\w*"
    r"|plan\w*|discuss\w*|research\w*|read\w*|find out|describ\w*|summari[sz]\w*|think\w*|propos\w*|suggest\w*|prüf\w*"
    r"|schau\w*|anschauen|vérifi\w*|regard\w*|revis\w*|comprueb\w*|провер\w*|посмотр\w*)"
)
# A limit to this step, a prohibition that leaves only looking, a request in form. "For now" and "not yet" hold until
# they are revoked.
_FOR_NOW = re.compile(
    r"\b(?:this time|(?:just|only) (?:this )?once|one-?off|this (?:pr|commit|check|review|step|round|run)|diesmal"
    r"|cette fois|esta vez|на этот раз)\b"
    rf"|(?<!\byou )(?<!\bI )\b(?:just|only|simply|first|nur|erst(?:mal)?|seulement|solo|только)"
    rf"\W+(?:a |an |the |to |please )*{_LOOKING}\b"
    r"|^\W*(?:(?:ok(?:ay)?|so|and|but|now|also|then|please|hey|hi|great|yes|no|quick \w+)\W+)*"
    r"(?:can|could|would|will) (?:you|we) (?:please |kindly |also |now |just |quickly )*"
    r"(?!(?:(?:mind )?(?:not|never|always)|stop|avoid|keep|only|refrain|make|be|use)\b)\w+"
    r"|这次|今回|이번",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(?:was|were|wasn['’]?t|weren['’]?t|did|didn['’]?t|had|happened|stopped|showed|failed|saw|noticed)\b",
    re.IGNORECASE,
)
_OBLIGES = re.compile(
    r"\b(?:must|should|shall|may|can|need|needs|have to|has to|don['’]?t|do not|please|only|make sure|ensure|want|like"
    r"|rather|avoid|stop|use|keep|leave|never|without)\b",
    re.IGNORECASE,
)


def is_lasting(sentence: str) -> bool:
    """Return whether a word makes a sentence hold beyond its own request ("always", "from now on")."""
    return _ALWAYS.search(_CODE.sub("", sentence)) is not None


def is_for_now(sentence: str) -> bool:
    """Return whether a sentence binds only its own request: a limit of this step, a request in form, a report."""
    plain = _CODE.sub("", sentence)
    if _ALWAYS.search(plain):
        return False
    is_report = _HAPPENED.search(plain) is not None and _OBLIGES.search(plain) is None
    return is_report or _FOR_NOW.search(plain) is not None


def is_wish(sentence: str) -> bool:
    """Return whether a sentence wishes for a piece of work ("I want to …", "we should …")."""
    return _ONE_TASK.search(sentence) is not None


# What a "no" is about, pointed at or named: "no, keep x.csv", "wait, not that one".
_OBJECTS = re.compile(
    r"^(?:no+|nope|nah|wait|stop|hold on)\b[\s,.!:;–-]{0,3}(?:please )?(?:keep|leave|not)\s+"
    r"(?:(?:that|this|those|these|it|them)\b[^,.;:]{0,20}|[\w./-]{0,80}\w\.\w{1,8})(?: as it is)?\W{0,3}$",
    re.IGNORECASE,
)


# An order that is carried out once, on all of something: "read all docs and tell me the ports", "run all tests".
_ONCE = re.compile(
    r"^(?:(?:please|pls|plz|kindly|also|and|now|then|first|next|ok(?:ay)?|hey|hi|just|quickly|go"
    r"|let['’]?s)[,.! ]+|(?:can|could|would) you )*"
    r"(?:(?:read|list|show|tell me|find|search|look|open|print|count|summari[sz]e|compare|display|browse|scan|skim"
    r"|go (?:through|over))\b"
    r"|(?:run|re-?run|delete|remove|update|upgrade|bump|fix|install|move|rename|rebuild|restart|download|upload|merge"
    r"|translate|convert|migrate|apply|revert|undo|do)\b(?=.{0,60}\b(?:all|both|each|every\w*)\b))"
    r"|^(?:bitte |jetzt |dann )*(?:zeig|lies|liste|nenne?(?= mir\b)|such|finde|öffne|lösche?|entferne|aktualisiere"
    r"|übersetze?)\w*\b"
    r"|^(?:montre|lis|liste|cherche|trouve|ouvre|affiche|muestra|muéstrame|lee|lista|busca|abre|leggi|elenca)\b"
    r"|^(?:请|帮我|现在|然后|先)*(?:读|看|列出|查看|打开|搜索|查找|运行|总结|翻译|删除|更新)"
    r"|^(?=.{0,60}(?:모든|모두|전부)).{0,60}(?:읽|보여|나열|찾아|열어|실행|요약|번역|삭제|확인)\S{0,3} ?"
    r"(?:줘|주세요|봐)",
    re.IGNORECASE,
)
# What makes it more than that: a time, a condition, a limit, a habit, the work of the reader.
_REACHES_ON = re.compile(
    r"\b(?:always|never|ever|only|when|whenever|before|after|while|once|until|unless|if|times?|from now|future|forward"
    r"|don['’]?t|do not|not|no|you|your|without|must|should|commit\w*|change[sd]?|per|instead|first|stop|avoid|keep"
    r"|prefer|use|using|remember"
    r"|immer|nie|bevor|vor|nach|wenn|nur|nicht|kein\w*|jedes mal|toujours|jamais|avant|après|si|pas|siempre|nunca|antes"
    r"|después|cuando|solo|sólo|sempre|mai|prima|dopo|se|non)\b"
    r"|每次|之前|以后|之后|后|前|必须|不|要|总是|始终|항상|앞으로|절대|매번|전에|후에|마다|때",
    re.IGNORECASE,
)


def _is_done_once(sentence: str) -> bool:
    """Return whether a sentence orders a look at all of something, or an act on it, and nothing about later work."""
    order = _ONCE.match(sentence)
    return order is not None and _REACHES_ON.search(sentence, order.end() if sentence.isascii() else 0) is None


# What is to be done in tests or functions that the message before it was about: "pass --yes to those new tests".
_IN_WORK = re.compile(
    r"(?i)\b(?:in|to|for|of|from|with) (?:(?:those|these|this|that)(?: \w+)?|(?:the|both|all)(?: \w+)? new) "
    r"(?:tests?|cases?|functions?|methods?)\b|\b(?:appears?|shows?|lists?|(?:is|are) \w{3,20}) in it\W*$"
)


def is_for_one_task(sentence: str) -> bool:
    """Return whether a sentence that may bind asks for one piece of work, without a word that makes it last."""
    if _IN_WORK.search(sentence) and not is_lasting(sentence):
        return True
    if _is_done_once(plain := _CODE.sub("", sentence)):
        return True
    if _OBJECTS.match(sentence) and not is_lasting(sentence):
        return True
    if _OWN_WISH.search(sentence) and not is_lasting(_WOULD_PREFER.sub("", sentence)):
        return True
    is_step = is_particular(sentence)
    if not is_step and not is_wish(sentence):
        return False
    plain = _ANSWERS.sub("", plain)
    # "All" of what a step is about does not make it last.
    return _LASTING.search(_QUANTITY.sub("", plain) if is_step else plain) is None
