"""Values, rules and ports shared by all packages; standard library only.

Read first: `messages.py` (what a conversation is made of), then `rules.py` (what makes one sendable). `usage.py` is
what a call cost, `events.py` what happened, `errors.py` what can go wrong, `ports.py` what is handed in from above.
`concurrency.py` has threads, event loops, cancellation and the clock.
"""
