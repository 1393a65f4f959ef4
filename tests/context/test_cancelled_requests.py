"""Requests that the user takes back: closed whatever the wording, never resumed; and what only sounds like it."""

from __future__ import annotations

import json

import pytest

from perdure.context.handoff import Handoff
from perdure.context.notebook import MAX_BYTES, Notebook, WindowNotes
from perdure.context.record.record import call_lines
from perdure.context.task_state.reader import read_state
from perdure.context.task_state.sections import write_sections
from perdure.context.task_state.state import TaskState
from perdure.core.messages import Entry, Message, ToolCall, assistant, tool_result, user


def state_of(*messages: Message) -> TaskState:
    entries = [Entry(n, m) for n, m in enumerate(messages, 1)]
    return read_state(entries, call_lines(entries))


def status_after(request: str, message: str, *, reply: str = "Which part first?") -> str:
    state = state_of(user("Hello."), assistant("Hi."), user(request), assistant(reply), user(message))
    return next(r.status for r in state.requests if r.text == request)


@pytest.mark.spec("E2", "E1c")
@pytest.mark.parametrize(
    "message",
    [
        "Never mind.",
        "Forget about the mailer.",
        "Actually, drop the mailer.",
        "Please cancel the mailer port.",
        "No need for the mailer anymore.",
        "Let's not do the mailer.",
        "We decided against the mailer, sorry.",
        "The mailer is off the table now.",
        "I changed my mind about the mailer, leave it.",
        "You don't have to port the mailer any more.",
        "Leave it, we no longer want the mailer.",
        "Vergiss den Mailer.",
        "Scratch that mailer, please.",
        "We won't be doing the mailer after all.",
        "Please disregard my request for the mailer.",
        "The mailer? Forget it.",
        "As for the mailer: never mind.",
        "You can bin the mailer idea.",
        "Abort the mailer.",
        "Ignore what I said about the mailer.",
    ],
)
def test_a_request_that_is_taken_back_is_closed(message: str) -> None:
    assert status_after("Please port the mailer to asyncio.", message) == "cancelled"


@pytest.mark.spec("E2")
@pytest.mark.parametrize(
    ("request_text", "message"),
    [
        ("Please port the mailer to asyncio.", "Forget about the ledger."),
        ("Please port the mailer and the ledger.", "Skip the mailer."),
        ("Write the export.", "We don't need tests for the export."),
        ("Fix the login page.", "Don't do the styling of the login page."),
        ("Fix the login page.", "Don't start with the login page until I say so."),
        ("Fix the login page.", "Can we drop the login page?"),
        ("Migrate the users.", "Never use floats for money."),
        ("Read the build log.", "Ignore the warnings in the build log."),
        ("Print the rows.", "For empty rows, skip them."),
    ],
)
def test_what_takes_back_something_else_or_a_part_leaves_the_request_open(request_text: str, message: str) -> None:
    assert status_after(request_text, message) == "open"


@pytest.mark.spec("E2")
def test_a_request_does_not_bind_as_a_remark_whether_or_not_it_was_taken_back() -> None:
    request = "Schreibe das Migrationsskript für die Tabelle orders."
    promise, thanks = assistant("Das mache ich danach."), assistant("Gut.")
    talk = (user(request), promise, user("Vergiss das Migrationsskript."), thanks, user("Lies die drei Seiten."))
    for messages in ((*talk[:2], *talk[4:]), talk):
        assert request not in write_sections(state_of(*messages)).get("Constraints & Preferences", "")


@pytest.mark.spec("E2")
def test_the_message_stays_a_request_because_it_may_ask_for_work() -> None:
    change, cancel = "I want to change my flight reservation.", "Actually, cancel the reservation."
    state = state_of(user(change), assistant("To which day?"), user(cancel))
    assert [(r.text, r.status) for r in state.requests] == [(change, "cancelled"), (cancel, "open")]


@pytest.mark.spec("E2")
@pytest.mark.parametrize("message", ["Forget about the mailer.", "Never mind."])
def test_continue_does_not_resume_what_was_cancelled_after_a_promise(message: str) -> None:
    state = state_of(
        user("Port the mailer to asyncio."),
        assistant("I will do that next."),
        user(message),
        assistant("All right."),
        user("continue"),
    )
    assert state.open_requests == () or all("Port" not in r.text for r in state.open_requests)


@pytest.mark.spec("E2", "E1c")
def test_plan_and_goal_forget_what_was_cancelled() -> None:
    items = [
        {"text": "port the mailer to asyncio", "status": "pending"},
        {"text": "rename tables", "status": "pending"},
    ]
    call = ToolCall("c1", "todo", json.dumps({"items": items}))
    state = state_of(
        user("Port the mailer to asyncio."),
        assistant(None, (call,)),
        tool_result(call.id, "1. [ ] port the mailer to asyncio\n2. [ ] rename tables", "todo"),
        assistant("Which part first?"),
        user("Rename the tables of the ledger as well."),
        assistant("Which ones?"),
        user("Forget about the mailer."),
    )
    sections = write_sections(state)
    assert "Port the mailer" not in "\n".join(sections.values())
    assert [i.text for i in state.open_plan] == ["rename tables"]
    assert "Rename the tables" in sections["Active Task"]


INVOICE = "Send the quarterly invoice to ACME Corporation."
RECHNUNG = "Schicke die Quartalsrechnung an die Firma ACME in Berlin."


def marked_notes(request: str, note: str, *messages: str, reply: str = "I will go on with it later.") -> str:
    """The notebook in the next handoff, after a request with a note in its turn, a reply, and more messages."""
    call = ToolCall("c1", "notes", json.dumps({"action": "add", "heading": "Plan", "text": note}))
    turn = [user(request), assistant(None, (call,)), tool_result(call.id, "Noted.", "notes")]
    later = [m for text in messages for m in (user(text), assistant("All right."))]
    state = state_of(user("Hello."), assistant("Hi."), *turn, *([assistant(reply)] if reply else []), *later)
    notes = WindowNotes(Notebook((("Plan", note),)), 9, MAX_BYTES)
    return notes.add_to(Handoff({}), state).notebook.split("### Plan\n")[1]


@pytest.mark.spec("E2", "O5")
@pytest.mark.parametrize("reply", ["I will go on with it later.", ""], ids=["answered", "open"])
@pytest.mark.parametrize(
    ("request_text", "note", "message"),
    [
        (INVOICE, "Send the quarterly invoice to ACME after lunch", "Cancel the quarterly invoice to ACME."),
        (INVOICE, "Send the quarterly invoice to ACME after lunch", "Don't send the invoice to ACME after all."),
        (INVOICE, "Send the quarterly invoice to ACME after lunch", "Don't send the quarterly invoice to ACME."),
        (INVOICE, "Send the quarterly invoice to ACME after lunch", "Never mind the invoice."),
        (INVOICE, "Send the quarterly invoice to ACME after lunch", "Stop that."),
        (INVOICE, "Send the quarterly invoice to ACME after lunch", "We no longer need the invoice to ACME."),
        ("Send the invoice to ACME.", "Send invoice to ACME", "Cancel the invoice to ACME."),
        ("Send the invoice to ACME.", "ACME invoice: to do", "Forget the invoice to ACME."),
        (RECHNUNG, "Quartalsrechnung an Firma ACME in Berlin schicken", "Vergiss die Quartalsrechnung an ACME."),
        (RECHNUNG, "Quartalsrechnung an Firma ACME in Berlin schicken", "Storniere das mit der Quartalsrechnung."),
        (RECHNUNG, "Quartalsrechnung an ACME schicken", "Schick die Quartalsrechnung doch nicht."),
        (RECHNUNG, "Quartalsrechnung an ACME schicken", "Wir brauchen die Quartalsrechnung nicht mehr."),
        ("Schreibe die Tests für das Login-Formular.", "Login-Formular: Tests schreiben, zuerst Fehlerfall",
         "Vergiss die Tests für das Login-Formular, brauchen wir nicht mehr."),
        ("Please migrate the billing database to Postgres.", "Billing: migrate database to Postgres, step 1 dump",
         "Forget the billing database migration."),
        ("Rename the package to foobar and publish it.", "TODO publish foobar",
         "Scrap that, do not rename or publish anything."),
        ("Delete the old S3 bucket legacy-logs.", "next: aws s3 rb legacy-logs", "Stop. Leave the bucket alone."),
        ("Add dark mode to settings page.", "dark mode pending: css vars", "Actually never mind about dark mode."),
        ("Envoie la facture à ACME.", "envoyer la facture à ACME", "Annule la facture à ACME."),
        ("Envía la factura a ACME.", "enviar la factura a ACME", "Olvida la factura a ACME."),
    ],
)  # fmt: skip
def test_notes_about_a_request_that_was_taken_back_are_marked(
    request_text: str, note: str, message: str, reply: str
) -> None:
    mark = f"[cancelled by the user, m:{7 if reply else 6}]"
    assert marked_notes(request_text, note, message, reply=reply) == f"{note} {mark}"


@pytest.mark.spec("E2", "O5")
@pytest.mark.parametrize(
    ("request_text", "note", "messages"),
    [
        (INVOICE, "Retry failed uploads three times", ["Cancel the quarterly invoice to ACME."]),
        (INVOICE, "Send the quarterly invoice to ACME", ["Forget about the mailer."]),
        (INVOICE, "Send the quarterly invoice to ACME", ["Thanks, and what is the weather?"]),
        (INVOICE, "Send the quarterly invoice to ACME", ["Stop that.", "Send the quarterly invoice to ACME now."]),
        (
            INVOICE,
            "Send the invoice to ACME [cancelled by the user, m:7]",
            ["Stop.", "Send the quarterly invoice to ACME."],
        ),
        ("Port the mailer to asyncio.", "port the ledger to asyncio", ["Forget about the mailer."]),
        (INVOICE, "Send the quarterly invoice to ACME", ["Can we cancel the quarterly invoice to ACME?"]),
        (INVOICE, "Send the quarterly invoice to ACME", ["Don't forget the attachment."]),
    ],
)
def test_other_notes_are_not_marked(request_text: str, note: str, messages: list[str]) -> None:
    assert marked_notes(request_text, note, *messages) == note.partition(" [cancelled")[0]
