-- How far a session's log came from elsewhere. What it says up to this position is data of another store: nothing runs on its word.
ALTER TABLE onrecord.sessions ADD COLUMN IF NOT EXISTS arrived BIGINT NOT NULL DEFAULT 0;
