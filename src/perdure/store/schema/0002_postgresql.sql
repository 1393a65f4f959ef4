-- Which transaction wrote a row: the only order in which rows of several writers become visible.
-- Released: never edited, only followed by the next number.

ALTER TABLE message ADD COLUMN written_in {int} NOT NULL DEFAULT txid_current()

CREATE INDEX message_written ON message (written_in)

ALTER TABLE call ADD COLUMN written_in {int} NOT NULL DEFAULT txid_current()

CREATE INDEX call_written ON call (written_in)

ALTER TABLE event ADD COLUMN written_in {int} NOT NULL DEFAULT txid_current()

CREATE INDEX event_written ON event (written_in)
