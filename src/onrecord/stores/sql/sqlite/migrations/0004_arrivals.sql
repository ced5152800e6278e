-- How far a session's log came from elsewhere: by an import, a copy, or the restore of a backup. No row: it was written here from its
-- first event. What a log says up to this position is data of another store: nothing runs on its word.
CREATE TABLE arrivals (
    session INTEGER PRIMARY KEY REFERENCES sessions (number),
    position INTEGER NOT NULL
) STRICT;
