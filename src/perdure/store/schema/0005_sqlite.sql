-- Fingerprints stood among other small values until now; they age from today on.
-- Released: never edited, only followed by the next number.

INSERT INTO fingerprint (print, conversation, seq, kept_at)
  SELECT key, json_extract(value, '$.conversation'), json_extract(value, '$.seq'),
    CAST(strftime('%s', 'now') AS INTEGER) * 1000
  FROM state WHERE scope = 'gateway:openai threads'

DELETE FROM state WHERE scope = 'gateway:openai threads'
