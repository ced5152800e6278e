-- Every statement the SQLite store runs, by name. A query begins with a line `-- name: what it is for` and ends where the next
-- begins. Sets of values come in as JSON lists, never as text spliced into a statement.

-- head: the head of a log
SELECT number, id, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM heads WHERE id = ?1

-- head_and_lease: everything an append must know, in one query
SELECT s.number, s.id, s.project, s.name, s.position, s.hash, s.run, s.status, s.title, s.opened_at, s.at, s.held, s.parent,
    s.forked_at, iif(l.holder IS NULL, NULL, l.epoch), l.until - l.span / 2, l.span
FROM heads AS s LEFT JOIN leases AS l ON l.session = s.number AND l.lane = ?2 WHERE s.id = ?1

-- heads_together: the heads of many logs
SELECT s.number, s.id, s.project, s.name, s.position, s.hash, s.run, s.status, s.title, s.opened_at, s.at, s.held, s.parent,
    s.forked_at
FROM json_each(?1) AS wanted CROSS JOIN heads AS s ON s.id = wanted.value

-- leases_together: the leases of many lanes, given as pairs of session and lane
SELECT s.id, l.lane, iif(l.holder IS NULL, NULL, l.epoch), l.until - l.span / 2, l.span, l.epoch, l.holder, l.since, l.until
FROM json_each(?1) AS wanted CROSS JOIN sessions AS s ON s.id = wanted.value ->> 0
    CROSS JOIN leases AS l ON l.session = s.number AND l.lane = wanted.value ->> 1

-- lineage: the session and its ancestors, each with the range of positions it contributes to the session's history
WITH RECURSIVE line (number, id, parent, forked_at, upto) AS (
    SELECT number, id, parent, forked_at, position FROM heads WHERE id = ?1
    UNION ALL
    SELECT s.number, s.id, s.parent, s.forked_at, min(line.upto, line.forked_at)
    FROM line JOIN sessions AS s ON s.id = line.parent
)
SELECT number, id, forked_at, upto FROM line

-- descendants: the sessions that inherit from a session, over any number of forks, itself included
WITH RECURSIVE tree (number, id) AS (
    SELECT number, id FROM sessions WHERE id = ?1
    UNION
    SELECT s.number, s.id FROM tree JOIN sessions AS s ON s.parent = tree.id
)
SELECT number FROM tree

-- heads_newest: sessions of every project, newest first
SELECT number, id, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM heads
WHERE (moment, at, id) < (:moment, :at, :id) AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
ORDER BY moment DESC, at DESC, id DESC LIMIT :limit

-- heads_of_project: sessions of one project, newest first
SELECT number, id, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM heads
WHERE project = :project AND (moment, at, id) < (:moment, :at, :id)
    AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
ORDER BY moment DESC, at DESC, id DESC LIMIT :limit

-- heads_by_name: sessions of which the name, or the beginning of the name or of the id, is known; newest first
SELECT number, id, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM heads
WHERE number IN (
        SELECT number FROM sessions WHERE name = :name
        UNION ALL SELECT number FROM sessions WHERE name >= :prefix AND name < :prefix_end
        UNION ALL SELECT number FROM sessions WHERE id >= :id_prefix AND id < :id_prefix_end
    )
    AND (:name IS NULL OR name = :name)
    AND (:prefix IS NULL OR name >= :prefix AND name < :prefix_end OR id >= :id_prefix AND id < :id_prefix_end)
    AND (:project IS NULL OR project = :project) AND (at, id) < (:at, :id)
    AND (:statuses IS NULL OR status IN (SELECT value FROM json_each(:statuses)))
ORDER BY at DESC, id DESC LIMIT :limit

-- children: the forks of a session, oldest first
SELECT number, id, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM heads WHERE parent = ?1 ORDER BY number

-- name_taken: the session that has a name in a project
SELECT id, status FROM sessions WHERE project = ?1 AND name = ?2

-- add_session: a new session
INSERT INTO sessions
    (id, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at, moment, key_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number

-- change_head: update the row of a session; `heads` serves the steps of turns that it does not have yet
UPDATE sessions SET position = ?2, hash = ?3, run = ?4, status = ?5, at = ?6, project = ?7, name = ?8, title = ?9,
    opened_at = ?10, held = ?11, moment = ?12
WHERE number = ?1

-- change_heads: the same for several sessions
UPDATE sessions SET position = changed.column2, hash = changed.column3, run = changed.column4, status = changed.column5,
    at = changed.column6, project = changed.column7, name = changed.column8, title = changed.column9,
    opened_at = changed.column10, held = changed.column11, moment = changed.column12
FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)) AS changed WHERE number = changed.column1

-- move_head: update the row of a session where no more has changed than its end; lists show it in another place
UPDATE sessions SET position = ?2, hash = ?3, run = ?4, at = ?5, moment = ?6 WHERE number = ?1

-- move_heads: the same for several sessions
UPDATE sessions SET position = changed.column2, hash = changed.column3, run = changed.column4, at = changed.column5,
    moment = changed.column6
FROM (VALUES (?, ?, ?, ?, ?, ?)) AS changed WHERE number = changed.column1

-- grow_head: update the row of a session where no more has changed than its end, within the same moment
UPDATE sessions SET position = ?2, hash = ?3, run = ?4, at = ?5 WHERE number = ?1

-- grow_heads: the same for several sessions
UPDATE sessions SET position = changed.column2, hash = changed.column3, run = changed.column4, at = changed.column5
FROM (VALUES (?, ?, ?, ?, ?)) AS changed WHERE number = changed.column1

-- scrub_session: forbid snapshots of positions before the erasure
UPDATE sessions SET scrubbed = (SELECT position FROM heads WHERE heads.number = ?1) + ?2 WHERE number = ?1

-- add_event: insert one event with an id that must be new
INSERT INTO events (key, id, kind, v, at, by, run, because, tier, salt, payload_hash, hash, encoding, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- known_event: the event with an id among a session's own events
SELECT key & 4294967295, run, hash, kind, salt, payload_hash FROM events WHERE key >> 32 = ?1 AND id = ?2 AND key <= ?3

-- known_events: the same for many ids
SELECT id, key & 4294967295, run, hash, kind, salt, payload_hash FROM events
WHERE key >> 32 = ?1 AND id IN (SELECT value FROM json_each(?2)) AND key <= ?3

-- events: a range of a session's own events, in order
SELECT key, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding,
    CASE encoding WHEN 2 THEN (SELECT body FROM blobs WHERE blobs.key = payload) ELSE payload END
FROM events WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3

-- events_backwards: the same, newest first
SELECT key, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding,
    CASE encoding WHEN 2 THEN (SELECT body FROM blobs WHERE blobs.key = payload) ELSE payload END
FROM events WHERE key > ?1 AND key <= ?2 ORDER BY key DESC LIMIT ?3

-- chosen_events: the same as `events`, of some kinds only, or with the payloads of some kinds only
SELECT key, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding,
    CASE WHEN ?5 IS NOT NULL AND kind NOT IN (SELECT value FROM json_each(?5)) THEN NULL
        WHEN encoding = 2 THEN (SELECT body FROM blobs WHERE blobs.key = payload) ELSE payload END
FROM events WHERE key > ?1 AND key <= ?2 AND (?4 IS NULL OR kind IN (SELECT value FROM json_each(?4))) ORDER BY key LIMIT ?3

-- chosen_events_backwards: the same, newest first
SELECT key, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding,
    CASE WHEN ?5 IS NOT NULL AND kind NOT IN (SELECT value FROM json_each(?5)) THEN NULL
        WHEN encoding = 2 THEN (SELECT body FROM blobs WHERE blobs.key = payload) ELSE payload END
FROM events WHERE key > ?1 AND key <= ?2 AND (?4 IS NULL OR kind IN (SELECT value FROM json_each(?4))) ORDER BY key DESC LIMIT ?3

-- scanned_events: the same as `chosen_events`, of some kinds, without hashes of the chain; what a short payload is compared with
SELECT key, id, kind, v, at, by, run, because, encoding,
    CASE encoding WHEN 2 THEN (SELECT body FROM blobs WHERE blobs.key = payload) ELSE payload END,
    CASE encoding WHEN 0 THEN salt END, CASE encoding WHEN 0 THEN payload_hash END
FROM events WHERE key > ?1 AND key <= ?2 AND (?4 IS NULL OR kind IN (SELECT value FROM json_each(?4))) ORDER BY key LIMIT ?3

-- event_by_id: one event of a session's own
SELECT key, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding,
    CASE encoding WHEN 2 THEN (SELECT body FROM blobs WHERE blobs.key = payload) ELSE payload END
FROM events WHERE key >> 32 = ?1 AND id = ?2 AND key <= ?3

-- linked: the sessions with an event of this id, newest first; the bounds are those of the index
SELECT s.id FROM events AS e JOIN sessions AS s ON s.number = e.key >> 32
WHERE e.id = ?1 AND e.id >= 'link/' AND e.id < 'link0' ORDER BY e.at DESC, s.id DESC

-- hash_at: the hash of one event
SELECT hash FROM events WHERE key = ?1

-- weigh: what payloads of some kinds occupy
SELECT key & 4294967295, kind,
    CASE encoding WHEN 2 THEN (SELECT length(body) FROM blobs WHERE blobs.key = payload) ELSE length(payload) END
FROM events
WHERE key > ?1 AND key <= ?2 AND payload IS NOT NULL
    AND (?3 IS NULL OR kind IN (SELECT value FROM json_each(?3)))
ORDER BY key

-- erase_payload: remove payload and salt; header and hashes stay
UPDATE events SET salt = NULL, payload = NULL, encoding = 0 WHERE key = ?1

-- blob_of: under which key an event's payload is kept, if out of line
SELECT payload FROM events WHERE key = ?1 AND encoding = 2

-- add_blob: keep a large payload, once
INSERT INTO blobs (key, body) VALUES (?1, ?2) ON CONFLICT DO NOTHING

-- drop_blob: remove a large payload that no event uses any more
DELETE FROM blobs WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM events WHERE encoding = 2 AND payload = ?1)

-- lease: the lease of a lane, released ones included
SELECT s.number, s.name, l.epoch, l.holder, l.since, l.until
FROM sessions AS s LEFT JOIN leases AS l ON l.session = s.number AND l.lane = ?2 WHERE s.id = ?1

-- leases: the leases of a session
SELECT l.lane, l.epoch, l.holder, l.since, l.until
FROM sessions AS s JOIN leases AS l ON l.session = s.number WHERE s.id = ?1 AND l.holder IS NOT NULL ORDER BY l.lane

-- take_lease: a new holder under a new epoch
INSERT INTO leases (session, lane, epoch, holder, since, until, span) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET epoch = excluded.epoch, holder = excluded.holder, since = excluded.since,
    until = excluded.until, span = excluded.span

-- extend_lease: more time for a holder, unless another one has the lane by now
UPDATE leases SET until = ?4, span = ?5 WHERE session = ?1 AND lane = ?2 AND epoch = ?3

-- release_lease: remove the holder; the epoch stays
UPDATE leases SET holder = NULL WHERE session = ?1 AND lane = ?2

-- save_snapshot: a snapshot in place of the older one, unless payloads were erased since
INSERT INTO snapshots (session, view, position, hash, body)
SELECT number, ?2, ?3, ?4, ?5 FROM sessions WHERE id = ?1 AND scrubbed <= ?3
ON CONFLICT DO UPDATE SET position = excluded.position, hash = excluded.hash, body = excluded.body

-- snapshots: the kept snapshots of a view, of some sessions
SELECT s.id, n.position, n.hash, n.body
FROM json_each(?1) AS wanted CROSS JOIN sessions AS s ON s.id = wanted.value
    CROSS JOIN snapshots AS n ON n.session = s.number AND n.view = ?2

-- glance_by_name: the session of a name in a project, with the kept snapshot of a view
SELECT number, name, status, s.position, forked_at, snapshots.position, snapshots.hash, body
FROM heads AS s LEFT JOIN snapshots ON session = number AND view = ?3 WHERE project = ?1 AND name = ?2

-- glance_by_id: the same by the session's id
SELECT number, name, status, s.position, forked_at, snapshots.position, snapshots.hash, body
FROM heads AS s LEFT JOIN snapshots ON session = number AND view = ?3 WHERE id = ?2

-- glance_at_live: the same for the live sessions of a project; two rows mean that the session is ambiguous
SELECT number, name, status, s.position, forked_at, snapshots.position, snapshots.hash, body
FROM heads AS s LEFT JOIN snapshots ON session = number AND view = ?3
WHERE project = ?1 AND status IN ('open', 'active', 'paused', 'resumed') LIMIT 2

-- glance_by_link: the same for the session with a conversation on record, a live one first; and the conversation's agent
SELECT number, name, status, s.position, forked_at, snapshots.position, snapshots.hash, body, s.id, by
FROM events AS e JOIN heads AS s ON number = e.key >> 32
    LEFT JOIN snapshots ON session = number AND view = ?2
WHERE e.id = ?1 AND e.id >= 'link/' AND e.id < 'link0'
ORDER BY status NOT IN ('open', 'active', 'paused', 'resumed'), e.at DESC, s.id DESC LIMIT 1

-- glance_at_tail: the event a snapshot ends with, and what follows it of some kinds, with the payloads of some of those
SELECT key & 0xFFFFFFFF, kind, at, by, run, because, hash, encoding,
    CASE WHEN kind IN (SELECT value FROM json_each(?4)) THEN payload END
FROM events WHERE key >= ?1 AND key <= ?2 AND (key = ?1 OR kind IN (SELECT value FROM json_each(?3))) ORDER BY key

-- drop_snapshots: every snapshot of a session
DELETE FROM snapshots WHERE session = ?1

-- drop_every_snapshot: every snapshot of every session
DELETE FROM snapshots

-- behind: sessions with events that search has not indexed yet; those with a key of their own never are, so that no word is left
SELECT s.number, s.id, coalesce(i.position, s.forked_at), s.position,
    (SELECT k.key_id IS NOT NULL FROM sessions AS k WHERE k.number = s.number)
FROM heads AS s LEFT JOIN indexed AS i ON i.session = s.number
WHERE s.position > coalesce(i.position, s.forked_at)
    AND (?1 IS NULL OR s.project = ?1) AND (?2 IS NULL OR s.id = ?2)
ORDER BY s.number

-- progress: how far a session is indexed
SELECT position FROM indexed WHERE session = ?1

-- set_progress: a session is indexed up to a position
INSERT INTO indexed (session, position) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET position = excluded.position

-- erased_among: which of these events have no payload any more
SELECT key FROM events WHERE key IN (SELECT value FROM json_each(?1)) AND payload IS NULL

-- add_words: the words of one event
INSERT INTO words (rowid, text) VALUES (?1, ?2)

-- drop_words: remove the words of one event
DELETE FROM words WHERE rowid = ?1

-- merge_words: rewrite part of the index, so that removed words leave the file
INSERT INTO words (words, rank) VALUES ('merge', ?1)

-- search: events that have all words, newest session first and newest event first
SELECT s.id, w.rowid & 4294967295
FROM words AS w JOIN sessions AS s ON s.number = w.rowid >> 32
WHERE w.words MATCH ?1 AND (?2 IS NULL OR s.project = ?2) ORDER BY w.rowid DESC LIMIT ?3

-- search_session: the same within one session, given as the range of its keys
SELECT s.id, w.rowid & 4294967295
FROM words AS w JOIN sessions AS s ON s.number = w.rowid >> 32
WHERE w.words MATCH ?1 AND w.rowid > ?4 AND w.rowid <= ?5 AND (?2 IS NULL OR s.project = ?2)
ORDER BY w.rowid DESC LIMIT ?3

-- arrived: how far a log came from elsewhere
SELECT a.position FROM sessions AS s JOIN arrivals AS a ON a.session = s.number WHERE s.id = ?1

-- mark_arrived: a log came from elsewhere up to a position
INSERT INTO arrivals (session, position) VALUES (?1, ?2)
ON CONFLICT DO UPDATE SET position = max(arrivals.position, excluded.position)

-- mark_all_arrived: every log came from elsewhere, all of it
INSERT INTO arrivals (session, position) SELECT number, position FROM heads WHERE TRUE
ON CONFLICT DO UPDATE SET position = excluded.position

-- key_of: the id of a session's own key, if it has one
SELECT key_id FROM sessions WHERE id = ?1

-- session_keys: since when new sessions get a key of their own
SELECT value FROM meta WHERE name = 'session_keys'

-- keyed_sessions: the sessions with a key of their own
SELECT id, key_id, status FROM sessions WHERE key_id IS NOT NULL ORDER BY number

-- secret: what the names of blobs are keyed with
SELECT value FROM meta WHERE name = 'secret'

-- add_meta: a fact about this store
INSERT INTO meta (name, value) VALUES (?1, ?2)

-- counts: how much is kept
SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM events), (SELECT count(*) FROM blobs),
    (SELECT count(*) FROM snapshots), (SELECT count(*) FROM leases WHERE holder IS NOT NULL)

-- tables: whether the file has any table
SELECT count(*) FROM sqlite_schema
