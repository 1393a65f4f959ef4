"""What single messages contribute to the state of a task: computed once per entry and cached with it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perdure.context.record.decisions import assistant_choices, choices_among, takes_back
from perdure.context.text import PLAN, beginning, ending, sentences, tidy
from perdure.context.user_intent import corrections_among, is_bare, own_words, remarks_among, rules_among, typed_text
from perdure.context.user_voice import read_sentences
from perdure.core.messages import SUMMARY_OPENINGS, Entry, Message, ToolCall
from perdure.redaction import redact

_STILL_FAILS = re.compile(
    r"\b(?:still (?:fail|broken|red|not work)|could ?n[o']t|cannot|can't|unable to|blocked"
    r"|not (?:yet )?(?:fixed|solved)|remains? (?:broken|open|unsolved)|fail(?:s|ing|ed) (?:with|because)"
    r"|schlägt (?:weiter|noch)|funktioniert nicht|ne (?:marche|fonctionne) pas|sigue fallando|не работает)\b"
    r"|仍然|还是(?:失败|报错)|まだ|失敗|여전히|실패",
    re.IGNORECASE,
)
# A final reply with none of these leaves nothing of the plan open.
_MORE_TO_DO = re.compile(
    r"\b(?:remain\w*|next|still|to-?do|left|later|pending|not yet|follow-?up|noch|nächste|reste|queda"
    r"|pendiente|осталось)\b|接下来|下一步|还需|剩|残り|次に|まだ|다음|남은|아직",
    re.IGNORECASE,
)
_ASKS_BACK = re.compile(r"[?？][\s\"'”’)\]*_`]*$")
_LONGEST_QUESTION = 400
_ANSWER_CHARS = 220
_LAST_CHARS = 400
_END_CHARS = 1_000
_SHORTEST_PLAN = 12
_LONGEST_ANNOUNCEMENT = 160
_ANNOUNCED = re.compile(r"[\w./:=-]+")
# Words that say nothing beside the call that follows.
_ANNOUNCING = frozenset(
    re.findall(
        r"[\w']+",
        "next now then first finally let me let's i i'll ll will am going to the a an for of on in and with it this "
        "that its again also step call calling run running read reading check checking set setting use using do doing "
        "open opening write writing update updating create creating look looking at file module tool command go ahead",
    )
)
# What a client writes before the words of a user who stopped a turn.
_INTERRUPTION = re.compile(r"\A\[(?:Request )?interrupted by (?:the )?user[^\]\n]{0,40}\]\s*(?=\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UserReading:
    """A user message: its text as a request, the user's own words, and what they lay down."""

    text: str
    own_words: str
    is_bare: bool
    rules: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    takes_back: bool = False


@dataclass(frozen=True, slots=True)
class ReplyReading:
    """A final reply: the question that ends it, and whether it mentions failures or open work."""

    text: str
    question: str
    has_failed: bool
    has_more_to_do: bool


def user_reading(entry: Entry) -> UserReading:
    return entry.memoized("user reading") or entry.memo("user reading", read_user)


def reply_reading(entry: Entry) -> ReplyReading:
    return entry.memoized("reply reading") or entry.memo("reply reading", _read_reply)


def prepare_reading(entry: Entry) -> None:
    """Compute and cache what the state needs of a message."""
    message = entry.message
    if message.is_real_user:
        user_reading(entry)
    elif message.kind == "assistant" and message.text:
        decisions_of(entry)
        plan_of(entry)
        last_words_of(entry)
        if not message.tool_calls:
            reply_reading(entry)
            answer_of(entry)


def decisions_of(entry: Entry) -> tuple[str, ...]:
    """Return the cached decisions of an assistant message."""
    return entry.memo("decisions", assistant_choices)


def plan_of(entry: Entry) -> tuple[str, ...]:
    """Return the open steps that an assistant message lists."""
    return entry.memo("plan", _read_plan)


def last_words_of(entry: Entry) -> str:
    """Return the end of an assistant message."""
    return entry.memo("last words", lambda m: ending(redact(m.text.strip()), _LAST_CHARS))


def answer_of(entry: Entry) -> str:
    """Return the beginning of a reply."""
    return entry.memo("answer", lambda m: beginning(redact(" ".join(_first_paragraph(m.text))), _ANSWER_CHARS))


def request_text(message: Message) -> str:
    """Return the text of a user message as a request; "" for markup of a client or a summary of another system."""
    text = typed_text(message)
    return "" if text.startswith(SUMMARY_OPENINGS) else text


def read_user(message: Message) -> UserReading:
    """Read a user message. Pure, so the result can be cached."""
    if isinstance(message.content, str) and (marker := _INTERRUPTION.match(message.content)) is not None:
        message = message.with_content(message.content[marker.end() :])
    text = redact(request_text(message))
    if not text:
        return UserReading("", "", is_bare=False)
    if is_bare(text):
        return UserReading(text, text, is_bare=True)
    own = redact(own_words(message))
    user = read_sentences(own)
    return UserReading(
        text,
        own,
        is_bare=False,
        rules=rules_among(user),
        corrections=corrections_among(user.spoken),
        remarks=remarks_among(user),
        choices=choices_among(user.spoken),
        takes_back=takes_back(own),
    )


def _read_reply(message: Message) -> ReplyReading:
    text = message.typed_text.strip()
    asked = sentences(text[-_LONGEST_QUESTION:])[-1:] if _ASKS_BACK.search(text[-60:]) else []
    # A reply tells its result at its ends.
    ends = text if len(text) <= 2 * _END_CHARS else f"{text[:_END_CHARS]}\n{text[-_END_CHARS:]}"
    return ReplyReading(
        text,
        redact(asked[0].strip(" *_-")) if asked else "",
        has_failed=_STILL_FAILS.search(ends) is not None,
        has_more_to_do=_MORE_TO_DO.search(ends) is not None,
    )


def announces(text: str, calls: Sequence[ToolCall]) -> bool:
    """Whether a sentence before calls merely names what they do ("Next: read billing.py")."""
    if not calls or len(text) > _LONGEST_ANNOUNCEMENT:
        return False
    made = " ".join(f"{c.name} {c.arguments[:2_000]}" for c in calls[:8]).lower()
    words = (w.rstrip(".:-") for w in _ANNOUNCED.findall(text.lower()))
    return all(w in _ANNOUNCING or w in made for w in words if w)


def _read_plan(message: Message) -> tuple[str, ...]:
    # What the calls of the message do is no longer to be done.
    ahead = [s for s in sentences(message.text) if not announces(s, message.tool_calls)]
    planned = PLAN.among(ahead, message.text)
    return tuple(redact(tidy(s.lstrip("-*#> "))) for s in planned if _SHORTEST_PLAN < len(s) <= _LAST_CHARS)[:8]


def _first_paragraph(text: str) -> Iterator[str]:
    """Return the first lines with words of their own, headings left out."""
    for line in text.strip().splitlines():
        if line.strip() and not line.lstrip().startswith(("#", "```", "|")):
            yield line.strip()
            if len(line) > 60:
                return
