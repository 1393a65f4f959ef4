"""Find secrets in text and replace them, leaving everything else untouched.

`secrets.py` searches a text three times, each time first for a few telling bytes and only then, around what it found,
with exact patterns: for keys that carry their issuer's prefix (`prefixes.py`), for values of telling names
(`assignments.py`, `names.py`), and for contexts that hold a secret whatever it looks like. `entropy.py` decides whether
a value is a placeholder, a word, or drawn at random; `scan.py` is the text as the searches see it.
"""

from perdure.redaction.scan import Secret
from perdure.redaction.secrets import are_clean, find_secrets, redact, redact_part

__all__ = ["Secret", "are_clean", "find_secrets", "redact", "redact_part"]
