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
