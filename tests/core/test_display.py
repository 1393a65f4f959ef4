"""What is shown to a person reads the way it is: nothing hidden, nothing turned around."""

from __future__ import annotations

import pytest

from perdure.core.display import call_target, escape_invisible, strip_controls
from perdure.core.messages import ToolCall


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text\n\twith tabs", "plain text\n\twith tabs"),
        ("naïve 漢字 🎉 ✔️", "naïve 漢字 🎉 ✔️"),
        ("a\u202eb\u202c", "a<U+202E>b<U+202C>"),
        ("r\u200bm\u00a0-rf\u2060", "r<U+200B>m<U+00A0>-rf<U+2060>"),
        ("\x1b[31m\x9b\r\x07\x7f", "<U+001B>[31m<U+009B><U+000D><U+0007><U+007F>"),
        ("tag\U000e0041 filler\u3164 soft\u00ad", "tag<U+E0041> filler<U+3164> soft<U+00AD>"),
        ("r\u034fm\u180b\u180c\u180d\u180f", "r<U+034F>m<U+180B><U+180C><U+180D><U+180F>"),
        ("line\u2028sep \ud800 \ue000", "line<U+2028>sep <U+D800> <U+E000>"),
    ],
)
def test_odd_characters_are_spelled_out(text: str, shown: str) -> None:
    assert escape_invisible(text) == shown


def test_controls_are_taken_out_and_ordinary_text_stays() -> None:
    assert strip_controls("a\x1b]8;;x\x07b\x9bc\u202ed\n\te\b\r") == "a]8;;xbcd\n\te"
    assert strip_controls("naïve 漢字 👩‍👩‍👧") == "naïve 漢字 👩‍👩‍👧"


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        ('{"timeout_s": 5, "path": "a.py", "command": "make\\n  test"}', "make test"),
        ('{"path": "  ", "query": "port"}', "port"),
        ('{"command": "abcdefghijklmnop"}', "abcdefghi…"),
        ('{"limit": 3}', ""),
        ("not json", ""),
    ],
)
def test_call_target_is_the_most_identifying_argument_on_one_line(arguments: str, target: str) -> None:
    assert call_target(ToolCall("c", "t", arguments), max_chars=10) == target
