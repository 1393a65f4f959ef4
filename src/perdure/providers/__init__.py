"""Provider APIs: three wire protocols behind one request and one reply type.

request → `<mode>.build` → `transport` → `<mode>.parse` or `<mode>.make_stream` → Reply; error → `errors.classify`.
Differences between services are data (`registry.py`) and pure functions.

Read first: `types.py`, the values; then one mode, e.g. `chat_completions.py`, which builds requests and parses replies.
"""
