"""Values, history rules and ports that all packages share; standard library only.

Read first: `messages.py` (the messages of a conversation), then `rules.py` (what makes a history valid to send).
`usage.py` has token usage, `events.py` the events of a turn, `errors.py` the exceptions, `ports.py` the Protocols that
upper layers implement, `visibility.py` who may see what. `concurrency.py` has threads, event loops, cancellation and
the clock.
"""
