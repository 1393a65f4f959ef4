-- Prompts that gateways run by the clock, and their runs. A run is inserted together with its message in the inbox.
-- Released: never edited, only followed by the next number.

CREATE TABLE schedule (
  id {text} NOT NULL PRIMARY KEY, name {text} NOT NULL UNIQUE, user_key {text} NOT NULL, prompt {text} NOT NULL,
  every_ms {int}, cron {text}, timezone {text} NOT NULL, model {text}, allowed {text} NOT NULL,
  created_at {int} NOT NULL, next_at {int} NOT NULL, missed {int} NOT NULL, missed_since {int})

CREATE INDEX schedule_next ON schedule (next_at)

CREATE TABLE schedule_run (
  schedule {text} NOT NULL REFERENCES schedule (id) ON DELETE CASCADE, due_at {int} NOT NULL, is_manual {int} NOT NULL,
  message {text} NOT NULL, started_at {int} NOT NULL, missed {int} NOT NULL, missed_since {int}, conversation {text},
  outcome {text}, detail {text} NOT NULL, finished_at {int}, PRIMARY KEY (schedule, due_at))

CREATE INDEX schedule_run_open ON schedule_run (schedule) WHERE outcome IS NULL

CREATE INDEX schedule_run_conversation ON schedule_run (conversation)
