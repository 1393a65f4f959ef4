"""The gateway: many users and conversations over one store.

A message passes authentication (`auth/`) at an endpoint (`api/`, `openai_api/`) or a platform adapter (`adapters/`).
`hub` stores it in the inbox and wakes its queue. In `workers/`, `queue` claims messages oldest first, `worker` runs a
slash command or a turn on a pooled agent (`agent_pool`), `precompaction` compacts a nearly full conversation first, and
`maintenance` takes over the messages of processes that died. `events/` sequences the events of a turn and streams them
to subscribers, who resume after a lost connection by number. `observability/` logs, counts and traces.
Read `events/types.py`, `hub.py` and `workers/worker.py` first.
"""
