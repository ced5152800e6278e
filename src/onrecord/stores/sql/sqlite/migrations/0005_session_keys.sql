-- A session may have a key of its own, which is outside of the store: destroying it erases every copy of what it encrypts.
ALTER TABLE sessions ADD COLUMN key_id TEXT;
