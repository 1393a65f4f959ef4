"""Text that only run time knows, as single characters that no real text holds (Unicode noncharacters).

A mark travels through words, variables and pipes like any other character, so that a rule can see where text came from.
"""

from __future__ import annotations

import re

# Nothing is known of it.
UNKNOWN = "\ufdd0"
# It was fetched from the network.
DOWNLOADED = "\ufdd1"
# It was decoded, reversed or otherwise unmasked on the way.
UNMASKED = "\ufdd2"
# It is, or holds, a credential.
SECRET = "\ufdd3"
# What an ordinary program says.
PROGRAM = "\ufdd4"
# The text of a file.
FILE = "\ufdd5"
# A folder that `mktemp` has just made.
FRESH = "\ufdd6"

ALL = UNKNOWN + DOWNLOADED + UNMASKED + SECRET + PROGRAM + FILE + FRESH
_ANY = re.compile(f"[{ALL}]")


def has_mark(text: str) -> bool:
    return _ANY.search(text) is not None


def marks_of(text: str, wanted: str = ALL) -> str:
    """The marks among `wanted` that stand in the text, each once."""
    return "".join(m for m in wanted if m in text)


def without_marks(text: str, stand_in: str = "?") -> str:
    """The text as a person may read it."""
    return _ANY.sub(stand_in, text)
