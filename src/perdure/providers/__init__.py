"""Three wire protocols, one reply: what differs between services lives here, as data and pure functions.

request → `<mode>.build` → `transport` → `<mode>.parse` or `<mode>.Stream` → Reply; an error → `classify` → verdict.

Read first: `exchange.py`, the values; then one mode: `chat_completions.py` builds, `chat_replies.py` reads. Services
and their quirks are rows of `services.py`; what they print when they fail, rows of `overflow_table.py`,
`prompt_table.py` and `fault_table.py`. `routes.py` says where calls go, `auxiliary.py` where side jobs go; `local.py`
is the embedded model.
"""
