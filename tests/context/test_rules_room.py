"""What the user laid down has room of its own, the rest is named with its address, and nothing is told twice."""

from __future__ import annotations

from perdure import compress
from perdure.context.record.record import RecordSource, call_lines
from perdure.context.task_state.instructions import write_instructions
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import StandingInstruction, TaskState
from perdure.core.messages import Entry, Message, assistant, user

_PLACES = ("anchor", "beacon", "cinder", "dapple", "ember", "fathom", "gantry", "harbour", "jetty", "keel")
_RULES = [f"Never edit {p}/{q}.toml, it belongs to the {q} team." for p in _PLACES[:5] for q in _PLACES]


def _state(*instructions: StandingInstruction) -> TaskState:
    return TaskState(instructions=instructions)


def _rules() -> list[StandingInstruction]:
    return [StandingInstruction(text, seq) for seq, text in enumerate(_RULES)]


def test_what_has_no_room_is_named_with_its_address() -> None:
    section = write_instructions(_state(*_rules()), room=2_000)
    assert _RULES[-1] in section
    assert _RULES[0] not in section
    tail = section.rpartition("\n")[2]
    quoted = section.count("- “")
    assert tail.startswith(f"[{len(_RULES) - quoted} more, in a few words")
    assert f"(m:{len(_RULES) - quoted - 1})" in tail
    assert len(section) < 2_200


def test_refusals_and_corrections_come_before_old_rules() -> None:
    refusal = StandingInstruction("no, the volume is shared with another team", 60, "refusal", about="deploy x1")
    correction = StandingInstruction("No, that's wrong: the limit is 40 crates.", 61, "correction")
    section = write_instructions(_state(refusal, correction, *_rules()), room=1_000)
    assert refusal.text in section
    assert correction.text in section


def test_many_corrections_leave_the_rules_half_of_the_room() -> None:
    corrections = [
        StandingInstruction(f"No, that's wrong: {r.text.lower()}", r.seq + 100, "correction") for r in _rules()
    ]
    section = write_instructions(_state(*_rules(), *corrections), room=3_000)
    assert _RULES[-1] in section
    assert corrections[-1].text in section


def test_without_a_log_every_rule_is_quoted() -> None:
    messages: list[dict[str, object]] = []
    for rule in _RULES:
        messages += [{"role": "user", "content": rule}, {"role": "assistant", "content": "Understood. " * 40}]
    messages += [{"role": "user", "content": "Show the totals."}, {"role": "assistant", "content": "word " * 9_000}]
    messages += [{"role": "user", "content": "And now?"}]
    handoff = compress(messages, context_length=32_000).handoff
    assert handoff is not None
    assert [rule for rule in _RULES if rule not in handoff] == []


def test_what_the_sections_quote_as_a_rule_is_not_told_again_in_the_record() -> None:
    both = f"The export was slow again, about forty minutes. {_RULES[1]} Thank you."
    messages: list[Message] = [
        user(_RULES[0]),
        assistant("Understood."),
        user(both),
        assistant("Noted."),
        user("Go on."),
    ]
    entries = [Entry(at, m) for at, m in enumerate(messages)]
    lines = call_lines(entries)
    sections = write_sections(read_state(entries, lines))
    text = "\n\n".join(f"## {name}\n{body}" for name, body in sections.items())
    record = RecordSource(entries, lines).draw(4_000, text)
    assert f"“{_RULES[0]}”" in text
    assert f"“{_RULES[1]}”" in text
    assert "USER [0]: Never edit anchor" in record
    assert _RULES[0] not in record
    assert _RULES[1] not in record
    assert "The export was slow again, about forty minutes." in record
