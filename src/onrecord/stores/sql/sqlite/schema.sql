-- The whole schema of a store in SQLite, as it is after the last migration (a test proves that both agree).
-- A fresh store is made from this file; an older one by the migrations it has not seen.

-- Facts about this store itself: `secret` keys the names of blobs, `made_at` is when the store was made; with `session_keys`, every new
-- session gets a key of its own.
-- Not for settings: a store behaves the same for every process.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per session: its head, as it was after the last fact. Of many turns in a row only one in 131 ms updates it; `heads` has
-- the end of the log. A row is never deleted: the id and the number of a session stay taken for good. Not the truth about the
-- session: every column but the number and the name's uniqueness can be folded again from the events.
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    position INTEGER NOT NULL,
    hash BLOB NOT NULL,
    run INTEGER NOT NULL,
    status TEXT NOT NULL,
    title TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    at INTEGER NOT NULL,
    held INTEGER NOT NULL,
    parent TEXT REFERENCES sessions (id),
    forked_at INTEGER NOT NULL,
    -- `at` in steps of 131 ms (at >> 17): lists are sorted by an index on it, which a burst of appends leaves alone.
    moment INTEGER NOT NULL,
    -- The position below which no snapshot may be kept any more, because payloads were erased since.
    scrubbed INTEGER NOT NULL DEFAULT 0,
    -- The id of the session's own key, which is outside of the store; NULL: it has none. Its payloads, title and snapshots are encrypted.
    key_id TEXT,
    UNIQUE (project, name)
) STRICT;
CREATE INDEX sessions_by_moment ON sessions (moment);
CREATE INDEX sessions_of_project ON sessions (project, moment);
CREATE INDEX sessions_by_name ON sessions (name);
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;

-- The log: one row per event, never updated except that erasure sets salt and payload to NULL.
-- `key` is session number << 32 | position, so a session's events lie side by side and in order.
-- `tier` is 1 for durable kinds and 0 for transcript kinds. `encoding` says how the payload is kept: 0 as it is, 1 compressed
-- with zstd, 2 under this key in `blobs`, 3 encrypted with the session's own key. A fork's inherited events are not copied: they are read where they are.
CREATE TABLE events (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    v INTEGER NOT NULL,
    at INTEGER NOT NULL,
    by TEXT NOT NULL,
    run INTEGER NOT NULL,
    because INTEGER,
    tier INTEGER NOT NULL,
    salt BLOB,
    payload_hash BLOB NOT NULL,
    hash BLOB NOT NULL,
    encoding INTEGER NOT NULL,
    payload BLOB
) STRICT;
CREATE UNIQUE INDEX events_by_id ON events (key >> 32, id);
CREATE INDEX events_by_blob ON events (payload) WHERE encoding = 2;
-- Finds the sessions that have a vendor's conversation on record; every other event leaves it alone.
CREATE INDEX events_by_link ON events (id) WHERE id >= 'link/' AND id < 'link0';

-- The end of each log: its last event. If `sessions` is further, it counts, because events are missing then. If `sessions` does not
-- match the event it was written with, one of them was changed: the hash is replaced by zeros, so that verification reports it.
CREATE VIEW heads AS
SELECT s.number, s.id, s.project, s.name, max(coalesce(e.key & 4294967295, 0), s.position) AS position,
    CASE WHEN e.key IS NULL OR e.key & 4294967295 <= s.position THEN s.hash
        WHEN s.hash = (SELECT hash FROM events WHERE key = s.number << 32 | s.position) THEN e.hash
        ELSE zeroblob(32) END AS hash,
    s.run, s.status, s.title, s.opened_at, max(coalesce(e.at, 0), s.at) AS at, s.held, s.parent, s.forked_at, s.moment
FROM sessions AS s LEFT JOIN events AS e
    ON e.key = (SELECT max(key) FROM events WHERE key BETWEEN s.number << 32 AND s.number << 32 | 4294967295);

-- Large payloads, compressed with zstd, each content once. The key is a hash keyed with this store's secret: a key does not reveal
-- whether a guessed content is here. Who uses a blob is deduced from `events_by_blob`, not counted.
CREATE TABLE blobs (
    number INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    body BLOB NOT NULL
) STRICT;

-- Who may write the turns of a lane. A released lease stays as a row without a holder, so that epochs never repeat.
-- Not a lock: an append compares its epoch with this row inside its own transaction.
CREATE TABLE leases (
    session INTEGER NOT NULL REFERENCES sessions (number),
    lane TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    holder TEXT,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    span INTEGER NOT NULL,
    PRIMARY KEY (session, lane)
) STRICT, WITHOUT ROWID;

-- Views as they were after a position, one per session and view. A cache: deleting every row changes nothing but speed.
-- The body is compressed with zstd.
CREATE TABLE snapshots (
    session INTEGER NOT NULL REFERENCES sessions (number),
    view TEXT NOT NULL,
    position INTEGER NOT NULL,
    hash BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (session, view)
) STRICT;

-- The words of payloads, for search; the row id is the event's key. It lags behind the log: search brings it up to date
-- first, append never touches it. The text itself is not kept, and the words come folded by `log/text.py`, so the plain ascii
-- tokenizer only has to split at spaces.
CREATE VIRTUAL TABLE words USING fts5 (text, content = '', contentless_delete = 1, detail = none, tokenize = 'ascii');

-- How far `words` has come, per session; no row means not begun.
CREATE TABLE indexed (
    session INTEGER PRIMARY KEY REFERENCES sessions (number),
    position INTEGER NOT NULL
) STRICT;

-- How far a session's log came from elsewhere: by an import, a copy, or the restore of a backup. No row: it was written here from its
-- first event. What a log says up to this position is data of another store: nothing runs on its word.
CREATE TABLE arrivals (
    session INTEGER PRIMARY KEY REFERENCES sessions (number),
    position INTEGER NOT NULL
) STRICT;
