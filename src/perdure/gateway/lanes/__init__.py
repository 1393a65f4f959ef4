"""Messages being worked on: one lane for each chat, the agents kept ready, their leases, and what came of each."""
