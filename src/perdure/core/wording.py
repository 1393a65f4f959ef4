"""Rewrite advice that is worded for the terminal, for a program that uses the library."""

from __future__ import annotations

import re

# From the longest phrase to the shortest; each with a sentence in which it occurs.
_PHRASES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # "take it back with /undo and put the text into a file"
        (r"take it back with /undo and put the text", "put its text"),
        # "Compaction is paused. /compress tries now; /new starts afresh."
        (r"/compress tries now; /new starts afresh", ".compress() tries now; a new conversation starts afresh"),
        (r"with /compress TOPIC", "with .compress(focus_topic=…)"),
        (r"with /compress\b", "with .compress()"),
        # "A new conversation (/new) or a larger window is needed."
        (r" \(/new\)", ""),
        (r"with /new\b", "with a new conversation"),
        (r"; `/model` lists (?:them|what can be called)", ""),
        (r"`/model` in a chat lists what can be called here; for a provider's models, [^;.]* first", "pass base_url="),
        (r"In a conversation, /model NAME chooses one; for all, [^.]*\.", "Name one with model=."),
        (r"with /model\b", "with .switch_model(name)"),
        # "Choose one for this time with the option `-m a`, for good with `perdure config set model.name a`."
        (r"for this time with the option `-m [^`]*`, for good with `perdure config set [^`]*`", "with model="),
        (r"with `perdure config set model\.name [^`]*`", "with model="),
        (r"with `perdure config set ([\w.]+) [^`]*`", r"(\1 in settings=)"),
        (r": perdure config set ([\w.]+) (\w+)", r": \1 = \2 in settings="),
        # "`perdure login URL` stores another key; `perdure doctor` shows where the present one is read from."
        (r"(?<=: )`perdure login [^`]*` stores (another|one)( key)?", r"pass \1\2 with api_key="),
        (r"`perdure login [^`]*` stores (another|one)( key)?", r"Pass \1\2 with api_key="),
        (r"; `perdure doctor` shows where the present one is read from", ""),
        # "no key for 'openai': run `perdure login openai`, set OPENAI_API_KEY, or …"
        (r"run `perdure login [^`]*`", "pass api_key="),
        (r"; `perdure login [^`]*` stores one", "; pass one with api_key="),
        # "Check the model's name (`model.name`, or -m); what the host offers: `perdure models`, or http://…"
        (r"\(`model\.name`, or -m\)", "(model=)"),
        (r": `perdure models`, or (?=http)", ": "),
        (r" \(from the command line\)", ""),
    )
)


def describe_in_program(text: str) -> str:
    """Return a message with arguments and methods in place of the terminal's commands."""
    if "/" not in text and "`" not in text and "perdure" not in text:
        return text
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    return text
