-- The index without one of its own for prefixes of three letters: it took a third of the space, and a query of another
-- length does not use it. A store with messages rebuilds its index in the background.
-- Released: never edited, only followed by the next number.

DROP TABLE message_index

DROP TABLE output_index

CREATE VIRTUAL TABLE message_index USING fts5 (
  parts, wholes, scope, content = '', columnsize = 0, tokenize = "ascii tokenchars '_./-:@#+'")

INSERT INTO message_index (message_index, rank) VALUES ('automerge', 8)

CREATE VIRTUAL TABLE output_index USING fts5 (
  parts, wholes, scope, content = '', columnsize = 0, tokenize = "ascii tokenchars '_./-:@#+'")

INSERT INTO state (scope, key, value) SELECT 'index', 'progress', '{"version": 0}'
WHERE EXISTS (SELECT 1 FROM message) OR EXISTS (SELECT 1 FROM output)
ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value
