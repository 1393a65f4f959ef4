-- A conversation's calls in the order they were made, a page at a time. Statements are parted by an empty line.
-- Released: never edited, only followed by the next number.

CREATE INDEX call_order ON call (conversation, id)
