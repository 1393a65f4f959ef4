"""The script of the demo: the user's messages, and the replies and tool calls of the scripted model."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from perdure.lab.demo.project import (
    BROKEN_LOOP,
    DISCOUNT_TEST,
    DISCOUNTED,
    FIXED_LOOP,
    PLAIN_TOTAL,
    SLOW_ORDER,
    SLOW_SECONDS,
    WAREHOUSE,
    has_git,
)
from perdure.testing.simulator import Call, Say, ScriptRequest

REFUSAL = "No: exports/2024.csv is the only copy the auditors have. Move it to archive/ instead."

# A reply that depends on what the model can see: a function of the prompt's text.
Reply = Say | Callable[[str], Say]


@dataclass(frozen=True, slots=True)
class DemoTurn:
    message: str
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class QuizQuestion:
    """A question about an earlier message or result, and the words that answer it."""

    question: str
    answer: str


QUIZ = (
    QuizQuestion("Which folder must never be touched?", "migrations/"),
    QuizQuestion("In which unit are durations reported?", "in seconds"),
    QuizQuestion("Why is the parser not written with a regular expression?", "umlauts"),
    QuizQuestion("Which order had the slowest request?", SLOW_ORDER),
    QuizQuestion("How long did the payment gateway timeout take?", SLOW_SECONDS),
    QuizQuestion("Why were the exports of 2024 not deleted?", "auditors"),
    QuizQuestion("From which amount on is there a discount?", "400"),
    QuizQuestion("How does accounting round?", "half up"),
    QuizQuestion("Which warehouse takes returns?", WAREHOUSE),
    QuizQuestion("What did the failing parser test say?", "too many values to unpack"),
)


def build_turns() -> tuple[DemoTurn, ...]:
    """Return the turns of the scripted conversation; commands use the Python of this machine."""
    python = "python3" if shutil.which("python3") else shlex.quote(sys.executable)
    tests = _terminal(f"{python} -m unittest -v 2>&1")
    return (*_bug_turns(tests), *_cleanup_turns(), *_pricing_turns(tests), *_closing_turns(tests))


def _bug_turns(tests: Call) -> tuple[DemoTurn, ...]:
    return (
        DemoTurn(
            "Two rules for all of today: never touch anything under migrations/, and report every duration in seconds."
            " Now the bug: imports fail for customers with a comma in their name. Find the cause, change nothing yet.",
            (
                Say("The tests first.", calls=(tests,)),
                Say("The parser fails on a quoted name. Its code:", calls=(_read("orders/parser.py"),)),
                Say(
                    'The cause is `line.split(",")` in `orders/parser.py`: a quoted name is split at its comma, and the'
                    " row has five fields instead of four. Nothing is changed yet."
                ),
            ),
        ),
        DemoTurn(
            "Fix it with the csv module, not with a regular expression: we had one, and it broke on umlauts.",
            (
                Say(
                    "",
                    calls=(
                        _patch("orders/parser.py", BROKEN_LOOP, FIXED_LOOP),
                        _patch("orders/parser.py", "from dataclasses", "import csv\nimport io\nfrom dataclasses"),
                    ),
                ),
                Say("Now the tests again.", calls=(tests,)),
                *_commit("Parser: read quoted fields with the csv module"),
                Say("Fixed: `parse_orders` reads rows with `csv.reader`. All three tests pass."),
            ),
        ),
        DemoTurn(
            "Something was slow in March. Look through logs/server.log.",
            (
                Say("I read the whole log.", calls=(_terminal("cat logs/server.log"),)),
                Say("Too long to read in one piece; errors only.", calls=(_terminal("grep -n ERROR logs/server.log"),)),
                Say(
                    f"One request stands out: order {SLOW_ORDER}, line 3108. The payment gateway timed out after three"
                    f" attempts; it took {SLOW_SECONDS} seconds. All others took less than one second."
                ),
            ),
        ),
    )


def _cleanup_turns() -> tuple[DemoTurn, ...]:
    return (
        DemoTurn(
            "Read the stock, shipping and invoices modules. Is there anything that parses text by hand as well?",
            (
                _reads("stock", "shipping", "invoices"),
                Say("No: `stock`, `shipping` and `invoices` take orders that are parsed already."),
            ),
        ),
        DemoTurn(
            "The exports folder is in the way. Clean it up.",
            (
                Say("I delete it.", calls=(_terminal("rm -rf exports"),)),
                Say("Understood, I move it.", calls=(_terminal("mkdir archive && mv exports/2024.csv archive/"),)),
                Say("`archive/2024.csv` holds the export of 2024; nothing was deleted."),
            ),
        ),
    )


def _pricing_turns(tests: Call) -> tuple[DemoTurn, ...]:
    return (
        DemoTurn(
            "New: 7.5% discount for orders of more than 400 euros. Round half up, as accounting does.",
            (
                Say("", calls=(_read("orders/pricing.py"),)),
                Say(
                    "",
                    calls=(
                        _patch("orders/pricing.py", PLAIN_TOTAL, DISCOUNTED),
                        _patch("orders/pricing.py", "import Decimal", "import ROUND_HALF_UP, Decimal"),
                    ),
                ),
                Say("", calls=(tests,)),
                *_commit("Pricing: discount of 7.5% above 400 euros"),
                Say("Done: `DISCOUNT = 0.075` above `DISCOUNT_FROM = 400`, rounded half up. The tests pass."),
            ),
        ),
        DemoTurn(
            "And where do returns go?",
            (
                Say("", calls=(_read("README.md"), _read("orders/returns.py"))),
                Say(f"To warehouse {WAREHOUSE}, gate 4, says the README."),
            ),
        ),
        DemoTurn(
            "Read the March data and the suppliers module as well; we will need both tomorrow.",
            (
                Say("", calls=(_read("data/march.csv"), _read("orders/suppliers.py"))),
                Say("Read: 260 orders in March, and twenty rules for suppliers."),
            ),
        ),
    )


def _closing_turns(tests: Call) -> tuple[DemoTurn, ...]:
    return (
        DemoTurn(
            "Add a test for the discount.",
            (
                Say("", calls=(Call("write_file", {"path": "tests/test_discount.py", "content": DISCOUNT_TEST}),)),
                Say("", calls=(tests,)),
                *_commit("Tests: the discount and its border", adds=True),
                Say("`tests/test_discount.py` checks 400, which has none, and 500, which has one. All tests pass."),
            ),
        ),
        DemoTurn(
            "Which limits are set where? Search all modules.",
            (
                Say("", calls=(_terminal("grep -n limit orders/*.py"), _read("orders/returns.py"))),
                Say("Every rule has its own default in its signature; there is no central place for limits."),
            ),
        ),
        DemoTurn(
            "Go through stock, shipping and invoices once more: I want the limits of each rule in a table tomorrow.",
            (
                _reads("stock", "shipping", "invoices"),
                Say("Each module has twenty rules with limits from 10 to 29."),
            ),
        ),
        DemoTurn("Before we stop: which two rules did I give you this morning?", (_recall_rules, _answer_rules)),
    )


class ScriptedModel:
    """Replies to each request with the next reply of the current turn."""

    def __init__(self, turns: tuple[DemoTurn, ...], *, chunk_delay_s: float) -> None:
        self._turns = turns
        self._chunk_delay_s = chunk_delay_s
        self._turn = self._reply = 0
        self._noted_turns = 0

    def begin(self, turn: int) -> None:
        self._turn, self._reply = turn, 0

    def __call__(self, request: ScriptRequest) -> Say:
        note = self._note_on_last_turn(request)
        if note is not None:
            return replace(note, chunk_delay_s=self._chunk_delay_s)
        replies = self._turns[self._turn].replies
        reply = replies[min(self._reply, len(replies) - 1)]
        self._reply += 1
        if not isinstance(reply, Say):
            reply = reply(prompt_text(request.body))
        return replace(reply, chunk_delay_s=self._chunk_delay_s)

    def _note_on_last_turn(self, request: ScriptRequest) -> Say | None:
        """Return a call that notes the result of the last turn, if the engine offers a notebook; else None."""
        if self._noted_turns >= self._turn or not _offers(request.body, "notes"):
            return None
        self._noted_turns = self._turn
        last = self._turns[self._turn - 1].replies[-1]
        if not isinstance(last, Say) or not last.text:
            return None
        return Say("", calls=(Call("notes", {"action": "add", "heading": "Results", "text": f"- {last.text}"}),))


def _offers(body: Mapping[str, Any], name: str) -> bool:
    return any(name in (tool.get("name"), tool.get("function", {}).get("name")) for tool in body.get("tools", ()))


def prompt_text(body: Mapping[str, Any]) -> str:
    """Return everything the model sees of the conversation, as one text."""
    return "\n".join(_texts(body.get("messages", ())))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in value.values() for text in _texts(item)]
    return [text for item in value for text in _texts(item)] if isinstance(value, list | tuple) else []


def _has_rules(prompt: str) -> bool:
    return "under migrations/" in prompt and "duration in seconds" in prompt


def _recall_rules(prompt: str) -> Say:
    """Build the scripted reply: an answer from the context, or a search of the log if that has lost the rules."""
    if _has_rules(prompt):
        return _answer_rules(prompt)
    return Say("Let me look that up.", calls=(Call("session_search", {"query": "two rules for all of today"}),))


def _answer_rules(prompt: str) -> Say:
    if _has_rules(prompt):
        return Say("Never touch anything under `migrations/`, and report every duration in seconds.")
    return Say("I no longer know.")


def _terminal(command: str) -> Call:
    return Call("terminal", {"command": command})


def _read(path: str) -> Call:
    return Call("read_file", {"path": path})


def _reads(*modules: str) -> Say:
    return Say("", calls=tuple(_read(f"orders/{name}.py") for name in modules))


def _patch(path: str, old: str, new: str) -> Call:
    return Call("patch", {"path": path, "old": old, "new": new})


def _commit(title: str, *, adds: bool = False) -> tuple[Say, ...]:
    """Return the scripted calls that commit the work so far; none if git is missing."""
    command = f"git commit -qam {shlex.quote(title)} && git log -1 --oneline"
    return (Say("", calls=(_terminal(f"git add tests && {command}" if adds else command),)),) * has_git()
