"""Three protocols, one reply: everything that differs between services, as data and pure functions.

request → `<mode>.build` → `transport` → `<mode>.parse` or `<mode>.make_stream` → Reply; error → `errors.classify`.

Read first: `types.py`, the values; then one mode, e.g. `chat_completions.py`, which builds requests and parses replies.
Providers and their quirks are rows in `registry.py`.
"""
