-- A session may have a key of its own, which is outside of the store: destroying it erases every copy of what it encrypts. Clients that
-- do not know this are refused once the owner switches it on.
ALTER TABLE onrecord.sessions ADD COLUMN IF NOT EXISTS key_id TEXT COLLATE "C";

-- Whether every new session of the tenant gets a key of its own.
ALTER TABLE onrecord.tenants ADD COLUMN IF NOT EXISTS session_keys BOOLEAN NOT NULL DEFAULT FALSE;
