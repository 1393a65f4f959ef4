"""The gateway: a server process for many users and conversations over one store.

A message passes authentication (`auth/`) at an endpoint (`api/`, `openai_api/`) or a platform adapter (`adapters/`). In
`workers/`, `hub` stores it in the inbox and wakes its queue; `queue` claims messages oldest first; `worker` runs one:
it resolves the conversation, acquires its agent (`agent_pool`), begins, runs the turn, and stores the result.
`precompaction` compacts a nearly full conversation first, and `maintenance` takes over the messages of processes that
died. `events/` sequences the events of a turn and streams them to subscribers, who resume after a lost connection by
number. `observability/` logs, counts and traces. Imports inside the gateway point in one direction, which `make check`
enforces: app → server → api, openai_api → workers → adapters → auth, observability → errors → events → executor. Read
`events/types.py`, `workers/hub.py` and `workers/worker.py` first. `auth/principal.py` decides whose conversations a
request may see.
"""
