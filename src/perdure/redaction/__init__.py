"""Find secrets in text and replace them, leaving everything else untouched.

`secrets.py` runs four searches over a text, most of them first for a few literal bytes and only around those with exact
patterns: for keys with their issuer's prefix (`prefixes.py`), for values of names such as `password` (`assignments.py`,
`names.py`), for contexts that hold a secret whatever it looks like, such as an authorization header, and for passwords
stated in a sentence (`sentences.py`). `entropy.py` decides whether a value is a placeholder, a word or random;
`scan.py` is the text as the searches read it.
"""

from perdure.redaction.scan import Secret
from perdure.redaction.secrets import are_clean, find_secrets, redact, redact_part

__all__ = ["Secret", "are_clean", "find_secrets", "redact", "redact_part"]
