"""Three wire protocols, one reply: what differs between services lives here, as data and pure functions.

request → `<mode>.build` → `transport` → `<mode>.parse` → Reply. Read first: `exchange.py`.
"""
