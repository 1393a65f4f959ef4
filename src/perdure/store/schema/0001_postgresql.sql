-- Search, outputs as rows and immutability, as PostgreSQL spells them. Statements are parted by an empty line.
-- Released: never edited, only followed by the next number.

-- What the index holds of a text. `parts` and `wholes` end in a space unless they are empty. A text whose words are too
-- many for a tsvector is found by its scope alone and then scanned.
CREATE FUNCTION search_words (parts TEXT, wholes TEXT, scope TEXT, is_scanned BOOLEAN) RETURNS TSVECTOR
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT array_to_tsvector(string_to_array(CASE WHEN is_scanned THEN scope ELSE parts || wholes || scope END, ' '))
$$

CREATE TABLE message_index (
  id BIGINT PRIMARY KEY, parts TEXT NOT NULL, wholes TEXT NOT NULL, scope TEXT NOT NULL, is_scanned BOOLEAN NOT NULL)

-- Without fastupdate every insert costs the same; with it, now and then one pays for all the others.
CREATE INDEX message_index_words ON message_index
USING gin (search_words(parts, wholes, scope, is_scanned)) WITH (fastupdate = off)

CREATE TABLE output_index (
  id BIGINT PRIMARY KEY, parts TEXT NOT NULL, wholes TEXT NOT NULL, scope TEXT NOT NULL, is_scanned BOOLEAN NOT NULL)

CREATE INDEX output_index_words ON output_index
USING gin (search_words(parts, wholes, scope, is_scanned)) WITH (fastupdate = off)

-- The text of an output; `chunks` says how many rows it has once all of them are there.
CREATE TABLE output_text (
  number {serial}, output {text} NOT NULL, conversation {text} NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
  chunks {int})

CREATE INDEX output_text_output ON output_text (output)

CREATE INDEX output_text_conversation ON output_text (conversation)

CREATE TABLE output_chunk (
  text_number {int} NOT NULL REFERENCES output_text (number) ON DELETE CASCADE, ordinal {int} NOT NULL,
  data {bytes} NOT NULL, encoding {int} NOT NULL, PRIMARY KEY (text_number, ordinal))

-- Both are compressed before they come here.
ALTER TABLE output_chunk ALTER COLUMN data SET STORAGE EXTERNAL

ALTER TABLE message ALTER COLUMN body SET STORAGE EXTERNAL

-- A permit can then never outlive its transaction, whoever tries.
ALTER TABLE nowhere ADD CONSTRAINT nowhere_is_empty CHECK (FALSE)

-- Tables are named with their schema: a temporary table of the same name must not stand in for a permit.
CREATE FUNCTION is_permitted (place NAME, owner TEXT, wanted TEXT) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE answer BOOLEAN;
BEGIN
  EXECUTE format(
    'SELECT EXISTS (SELECT 1 FROM %1$I.permit WHERE conversation = $1 AND deed = $2)'
    ' AND ($2 <> ''delete'' OR EXISTS (SELECT 1 FROM %1$I.tombstone WHERE conversation = $1))', place)
  INTO answer USING owner, wanted;
  RETURN answer;
END $$

-- Its arguments are the columns that scrubbing may change.
CREATE FUNCTION keep_row () RETURNS TRIGGER LANGUAGE plpgsql AS $$
DECLARE owner TEXT; allowed BOOLEAN;
BEGIN
  IF TG_OP = 'DELETE' AND TG_TABLE_NAME = 'span' THEN
    EXECUTE format('SELECT conversation FROM %I.session WHERE id = $1', TG_TABLE_SCHEMA) INTO owner USING OLD.session;
  ELSIF TG_OP = 'DELETE' OR TG_NARGS > 0 THEN
    owner := OLD.conversation;
  END IF;
  IF TG_OP = 'DELETE' AND TG_TABLE_NAME <> 'tombstone' THEN
    EXECUTE format('SELECT %I.is_permitted($1, $2, $3)', TG_TABLE_SCHEMA) INTO allowed
    USING TG_TABLE_SCHEMA, owner, 'delete';
    IF allowed THEN RETURN OLD; END IF;
  ELSIF TG_OP = 'UPDATE' AND TG_NARGS > 0 AND to_jsonb(OLD) - TG_ARGV = to_jsonb(NEW) - TG_ARGV THEN
    EXECUTE format('SELECT %I.is_permitted($1, $2, $3)', TG_TABLE_SCHEMA) INTO allowed
    USING TG_TABLE_SCHEMA, owner, 'scrub';
    IF allowed THEN RETURN NEW; END IF;
  END IF;
  RAISE EXCEPTION 'rows of % are never changed or deleted; delete the whole conversation, or scrub it', TG_TABLE_NAME;
END $$

CREATE TRIGGER message_stays BEFORE UPDATE OR DELETE ON message
FOR EACH ROW EXECUTE FUNCTION keep_row('body', 'encoding', 'chars')

CREATE TRIGGER event_stays BEFORE UPDATE OR DELETE ON event FOR EACH ROW EXECUTE FUNCTION keep_row('payload')

CREATE TRIGGER span_stays BEFORE UPDATE OR DELETE ON span FOR EACH ROW EXECUTE FUNCTION keep_row()

CREATE TRIGGER handoff_stays BEFORE UPDATE OR DELETE ON handoff FOR EACH ROW EXECUTE FUNCTION keep_row()

CREATE TRIGGER call_stays BEFORE UPDATE OR DELETE ON call FOR EACH ROW EXECUTE FUNCTION keep_row()

CREATE TRIGGER tombstone_stays BEFORE UPDATE OR DELETE ON tombstone FOR EACH ROW EXECUTE FUNCTION keep_row()

CREATE FUNCTION keep_table () RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'rows of % are never deleted all at once', TG_TABLE_NAME;
END $$

CREATE TRIGGER message_is_kept BEFORE TRUNCATE ON message EXECUTE FUNCTION keep_table()

CREATE TRIGGER event_is_kept BEFORE TRUNCATE ON event EXECUTE FUNCTION keep_table()

CREATE TRIGGER span_is_kept BEFORE TRUNCATE ON span EXECUTE FUNCTION keep_table()

CREATE TRIGGER handoff_is_kept BEFORE TRUNCATE ON handoff EXECUTE FUNCTION keep_table()

CREATE TRIGGER call_is_kept BEFORE TRUNCATE ON call EXECUTE FUNCTION keep_table()

CREATE TRIGGER tombstone_is_kept BEFORE TRUNCATE ON tombstone EXECUTE FUNCTION keep_table()
