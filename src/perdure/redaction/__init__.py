"""Find secrets in text and replace them, leaving everything else untouched.

`find_secrets` in `secrets.py` runs four searches: for keys with a known format (`prefixes.py`), for values assigned to
names such as `password` (`assignments.py`, `names.py`), for contexts that mark a secret whatever its format, such as an
authorization header (`secrets.py`), and for random values in a sentence about a credential (`sentences.py`).
`entropy.py` decides whether a value is a placeholder, a word or random. `scan.py` holds the text with the byte
positions that the searches share: a regular expression runs only where its literal bytes occur.
"""

from perdure.redaction.scan import Secret
from perdure.redaction.secrets import are_clean, find_secrets, redact, redact_part

__all__ = ["Secret", "are_clean", "find_secrets", "redact", "redact_part"]
