-- Every statement the PostgreSQL store runs, by name. A query begins with a line `-- name: what it is for` and ends where the next
-- begins. Values are bound, sets of values as arrays. Every transaction begins with `begin`; every statement names the tenant all the
-- same, so that a role that row-level security does not bind (a superuser) keeps to its tenant too.

-- begin: the settings of one transaction: its tenant, and that its commit waits for the disk (and a synchronous standby)
SELECT set_config('onrecord.tenant', %(tenant)s, TRUE),
    set_config(
        'synchronous_commit',
        CASE WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on' END,
        TRUE
    )

-- begin_planned: the same before a statement whose best plan does not depend on its values: it is planned once and not for every page
SELECT set_config('onrecord.tenant', %(tenant)s, TRUE),
    set_config(
        'synchronous_commit',
        CASE WHEN current_setting('synchronous_commit') = 'remote_apply' THEN 'remote_apply' ELSE 'on' END,
        TRUE
    ),
    set_config('plan_cache_mode', 'force_generic_plan', TRUE)

-- meta: the facts about this store
SELECT name, value FROM onrecord.meta

-- membership: what this login may do for the tenant, and what the owner decided about the tenant
SELECT p.rolname::text, CASE WHEN p.rolsuper OR p.rolbypassrls THEN 'writer' ELSE (
        SELECT m.role FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.tenant IN (%(tenant)s, '*') ORDER BY m.role DESC LIMIT 1
    ) END,
    EXISTS (SELECT FROM onrecord.members AS m WHERE m.login = session_user::text AND m.tenant = '*'),
    p.rolsuper OR p.rolbypassrls,
    (SELECT t.audited_from FROM onrecord.tenants AS t WHERE t.tenant = %(tenant)s),
    (SELECT t.retention FROM onrecord.tenants AS t WHERE t.tenant = %(tenant)s)
FROM pg_catalog.pg_roles AS p WHERE p.rolname = session_user

-- sign: record who reads some sessions of an audited tenant
SELECT onrecord.sign(%(sessions)s)

-- head: the head of a log
SELECT session, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s

-- locked_head: the same, locked: it does not move before this transaction ends
SELECT session, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s FOR UPDATE

-- standing: whether a lease is current
SELECT 1 FROM onrecord.leases
WHERE tenant = %(tenant)s AND session = %(session)s AND lane = %(lane)s AND epoch = %(epoch)s AND holder IS NOT NULL

-- locked_standing: the same, locked: the lane does not change hands before this transaction ends
SELECT 1 FROM onrecord.leases
WHERE tenant = %(tenant)s AND session = %(session)s AND lane = %(lane)s AND epoch = %(epoch)s AND holder IS NOT NULL
FOR SHARE

-- known: what is on record under some ids, the inherited history included
WITH RECURSIVE line (session, parent, forked_at, upto) AS (
    SELECT session, parent, forked_at, position FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s
    UNION ALL
    SELECT s.session, s.parent, s.forked_at, least(line.upto, line.forked_at)
    FROM line JOIN onrecord.sessions AS s ON s.tenant = %(tenant)s AND s.session = line.parent
)
SELECT e.id, e.position, e.run, e.hash, e.kind, e.salt, e.payload_hash
FROM line JOIN onrecord.events AS e ON e.tenant = %(tenant)s AND e.session = line.session AND e.position <= line.upto
WHERE e.id = ANY (%(ids)s)

-- lineage: the session and its ancestors, each with the range of positions it contributes to the session's history
WITH RECURSIVE line (depth, session, parent, forked_at, upto) AS (
    SELECT 0, session, parent, forked_at, position FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s
    UNION ALL
    SELECT line.depth + 1, s.session, s.parent, s.forked_at, least(line.upto, line.forked_at)
    FROM line JOIN onrecord.sessions AS s ON s.tenant = %(tenant)s AND s.session = line.parent
)
SELECT session, forked_at, upto FROM line ORDER BY depth

-- append_one: the ordinary append: the head moves from where it is expected and the event is inserted; or nothing happens
WITH lease AS (
    SELECT 1 FROM onrecord.leases
    WHERE tenant = %(tenant)s AND session = %(session)s AND lane = %(lane)s AND epoch = %(epoch)s AND holder IS NOT NULL
    FOR SHARE
), moved AS (
    UPDATE onrecord.sessions
    SET position = %(position)s, hash = %(hash)s, run = %(last_run)s, status = %(status)s, title = %(title)s,
        opened_at = %(opened_at)s, at = %(last_at)s, held = %(held)s, moment = %(moment)s, behind = TRUE
    WHERE tenant = %(tenant)s AND session = %(session)s AND position = %(from_position)s AND hash = %(from_hash)s
        AND (%(lane)s::text IS NULL OR EXISTS (SELECT 1 FROM lease))
        AND NOT EXISTS (
            SELECT 1 FROM unnest(%(ancestors)s::text[], %(upto)s::bigint[]) AS line (session, upto)
                JOIN onrecord.events AS e
                ON e.tenant = %(tenant)s AND e.session = line.session AND e.id = %(id)s AND e.position <= line.upto
        )
    RETURNING tenant, session, position
), added AS (
    INSERT INTO onrecord.events
        (tenant, session, position, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding, payload)
    SELECT tenant, session, position, %(id)s, %(kind)s, %(v)s, %(at)s, %(by)s, %(run)s, %(because)s::bigint, %(salt)s,
        %(payload_hash)s, %(hash)s, %(encoding)s, %(payload)s
    FROM moved
), extended AS (
    UPDATE onrecord.leases AS l SET until = clock.now + l.span
    FROM moved, (
        SELECT coalesce(%(now)s::bigint, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint) AS now
    ) AS clock
    WHERE l.tenant = %(tenant)s AND l.session = %(session)s AND l.lane = %(lane)s AND 2 * (l.until - clock.now) < l.span
)
SELECT position FROM moved

-- append_many: the same for several events at once
WITH lease AS (
    SELECT 1 FROM onrecord.leases
    WHERE tenant = %(tenant)s AND session = %(session)s AND lane = %(lane)s AND epoch = %(epoch)s AND holder IS NOT NULL
    FOR SHARE
), moved AS (
    UPDATE onrecord.sessions
    SET position = %(position)s, hash = %(hash)s, run = %(last_run)s, status = %(status)s, title = %(title)s,
        opened_at = %(opened_at)s, at = %(last_at)s, held = %(held)s, moment = %(moment)s, behind = TRUE,
        project = %(project)s, name = %(name)s
    WHERE tenant = %(tenant)s AND session = %(session)s AND position = %(from_position)s AND hash = %(from_hash)s
        AND (%(lane)s::text IS NULL OR EXISTS (SELECT 1 FROM lease))
        AND NOT EXISTS (
            SELECT 1 FROM unnest(%(ancestors)s::text[], %(upto)s::bigint[]) AS line (session, upto)
                JOIN onrecord.events AS e
                ON e.tenant = %(tenant)s AND e.session = line.session AND e.id = ANY (%(ids)s) AND e.position <= line.upto
        )
    RETURNING tenant, session, position
), added AS (
    INSERT INTO onrecord.events
        (tenant, session, position, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding, payload)
    SELECT moved.tenant, moved.session, new.*
    FROM moved, unnest(
        %(positions)s::bigint[], %(ids)s::text[], %(kinds)s::text[], %(vs)s::bigint[], %(ats)s::bigint[], %(bys)s::text[],
        %(runs)s::bigint[], %(becauses)s::bigint[], %(salts)s::bytea[], %(payload_hashes)s::bytea[], %(hashes)s::bytea[],
        %(encodings)s::bigint[], %(payloads)s::bytea[]
    ) AS new
), extended AS (
    UPDATE onrecord.leases AS l SET until = clock.now + l.span
    FROM moved, (
        SELECT coalesce(%(now)s::bigint, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint) AS now
    ) AS clock
    WHERE l.tenant = %(tenant)s AND l.session = %(session)s AND l.lane = %(lane)s AND 2 * (l.until - clock.now) < l.span
)
SELECT position FROM moved

-- keep_blobs: large payloads, each once; counts the uses of one that exists
SELECT onrecord.keep(%(keys)s, %(uses)s, %(bodies)s)

-- add_session: a new session
INSERT INTO onrecord.sessions
    (tenant, session, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at, moment, indexed,
        key_id)
VALUES (
    %(tenant)s, %(session)s, %(project)s, %(name)s, %(position)s, %(hash)s, %(run)s, %(status)s, %(title)s, %(opened_at)s, %(at)s,
    %(held)s, %(parent)s, %(forked_at)s, %(moment)s, %(forked_at)s, %(key_id)s
)
ON CONFLICT (tenant, session) DO NOTHING RETURNING session

-- take_name: reserve a name for a session, if the name is free
INSERT INTO onrecord.names (tenant, project, name, session) VALUES (%(tenant)s, %(project)s, %(name)s, %(session)s)
ON CONFLICT (tenant, project, name) DO NOTHING RETURNING session

-- give_name_back: release a name that a session no longer has
DELETE FROM onrecord.names
WHERE tenant = %(tenant)s AND project = %(project)s AND name = %(name)s AND session = %(session)s

-- has_name: the status of the session that has a name
SELECT s.status
FROM onrecord.names AS n JOIN onrecord.sessions AS s ON s.tenant = n.tenant AND s.session = n.session
WHERE n.tenant = %(tenant)s AND n.project = %(project)s AND n.name = %(name)s

-- events: a range of a session's own events, in order; of some kinds only, or with the payloads of some kinds only
SELECT e.position, e.id, e.kind, e.v, e.at, e.by, e.run, e.because, e.salt, e.payload_hash, e.hash, e.encoding,
    CASE WHEN %(bodies)s::text[] IS NOT NULL AND e.kind <> ALL (%(bodies)s::text[]) THEN NULL
        WHEN e.encoding = 2 THEN (SELECT b.body FROM onrecord.blobs AS b WHERE b.tenant = %(tenant)s AND b.key = e.payload)
        ELSE e.payload END
FROM onrecord.events AS e
WHERE e.tenant = %(tenant)s AND e.session = %(session)s AND e.position > %(after)s AND e.position <= %(upto)s
    AND (%(kinds)s::text[] IS NULL OR e.kind = ANY (%(kinds)s::text[]))
ORDER BY e.position LIMIT %(limit)s

-- events_backwards: the same, newest first
SELECT e.position, e.id, e.kind, e.v, e.at, e.by, e.run, e.because, e.salt, e.payload_hash, e.hash, e.encoding,
    CASE WHEN %(bodies)s::text[] IS NOT NULL AND e.kind <> ALL (%(bodies)s::text[]) THEN NULL
        WHEN e.encoding = 2 THEN (SELECT b.body FROM onrecord.blobs AS b WHERE b.tenant = %(tenant)s AND b.key = e.payload)
        ELSE e.payload END
FROM onrecord.events AS e
WHERE e.tenant = %(tenant)s AND e.session = %(session)s AND e.position > %(after)s AND e.position <= %(upto)s
    AND (%(kinds)s::text[] IS NULL OR e.kind = ANY (%(kinds)s::text[]))
ORDER BY e.position DESC LIMIT %(limit)s

-- event_by_id: one event, the inherited history included
WITH RECURSIVE line (session, parent, forked_at, upto) AS (
    SELECT session, parent, forked_at, position FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s
    UNION ALL
    SELECT s.session, s.parent, s.forked_at, least(line.upto, line.forked_at)
    FROM line JOIN onrecord.sessions AS s ON s.tenant = %(tenant)s AND s.session = line.parent
)
SELECT e.session, e.position, e.id, e.kind, e.v, e.at, e.by, e.run, e.because, e.salt, e.payload_hash, e.hash, e.encoding,
    CASE e.encoding WHEN 2 THEN (SELECT b.body FROM onrecord.blobs AS b WHERE b.tenant = %(tenant)s AND b.key = e.payload)
        ELSE e.payload END
FROM line JOIN onrecord.events AS e ON e.tenant = %(tenant)s AND e.session = line.session AND e.position <= line.upto
WHERE e.id = %(id)s

-- linked: the sessions whose own events have an id that can be found without knowing the session
SELECT session FROM onrecord.events
WHERE tenant = %(tenant)s AND id = %(id)s AND id >= 'link/' AND id < 'link0' ORDER BY at DESC, session DESC

-- hash_at: the hash of one event
SELECT hash FROM onrecord.events WHERE tenant = %(tenant)s AND session = %(session)s AND position = %(position)s

-- heads_newest: sessions of every project, newest first
SELECT session, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM onrecord.sessions
WHERE tenant = %(tenant)s AND moment <= %(moment)s AND (moment, at, session) < (%(moment)s, %(at)s, %(session)s)
    AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
ORDER BY moment DESC, at DESC, session DESC LIMIT %(limit)s

-- heads_of_project: sessions of one project, newest first
SELECT session, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM onrecord.sessions
WHERE tenant = %(tenant)s AND project = %(project)s AND moment <= %(moment)s
    AND (moment, at, session) < (%(moment)s, %(at)s, %(session)s)
    AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
ORDER BY moment DESC, at DESC, session DESC LIMIT %(limit)s

-- heads_by_name: sessions of which the name, or the beginning of the name or of the id, is known; newest first
SELECT session, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM onrecord.sessions
WHERE tenant = %(tenant)s AND (%(name)s::text IS NULL OR name = %(name)s)
    AND (%(prefix)s::text IS NULL OR name >= %(prefix)s AND name < %(prefix_end)s
        OR session >= %(id_prefix)s AND session < %(id_prefix_end)s)
    AND (%(project)s::text IS NULL OR project = %(project)s)
    AND moment <= %(moment)s AND (moment, at, session) < (%(moment)s, %(at)s, %(session)s)
    AND (%(statuses)s::text[] IS NULL OR status = ANY (%(statuses)s::text[]))
ORDER BY moment DESC, at DESC, session DESC LIMIT %(limit)s

-- children: the forks of a session, oldest first
SELECT session, project, name, position, hash, run, status, title, opened_at, at, held, parent, forked_at
FROM onrecord.sessions WHERE tenant = %(tenant)s AND parent = %(session)s ORDER BY opened_at, session

-- lease: the lease of a lane, released ones included, and what time it is
SELECT s.name, l.epoch, l.holder, l.since, l.until,
    coalesce(%(now)s::bigint, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint)
FROM onrecord.sessions AS s
    LEFT JOIN onrecord.leases AS l ON l.tenant = s.tenant AND l.session = s.session AND l.lane = %(lane)s
WHERE s.tenant = %(tenant)s AND s.session = %(session)s

-- take_lease: a new holder under the next epoch, unless the lane has changed since it was read
INSERT INTO onrecord.leases AS l (tenant, session, lane, epoch, holder, since, until, span)
SELECT %(tenant)s, %(session)s, %(lane)s, %(epoch)s, %(holder)s, clock.now, clock.now + %(span)s, %(span)s
FROM (SELECT coalesce(%(now)s::bigint, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint) AS now) AS clock
ON CONFLICT (tenant, session, lane) DO UPDATE
SET epoch = excluded.epoch, holder = excluded.holder, since = excluded.since, until = excluded.until, span = excluded.span
WHERE l.epoch = %(seen)s AND l.until = %(seen_until)s
RETURNING epoch, holder, since, until

-- extend_lease: more time for a holder
UPDATE onrecord.leases
SET until = greatest(
        until, coalesce(%(now)s::bigint, floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint) + %(span)s
    ), span = %(span)s
WHERE tenant = %(tenant)s AND session = %(session)s AND lane = %(lane)s AND epoch = %(epoch)s AND holder IS NOT NULL
RETURNING epoch, holder, since, until

-- release_lease: remove the holder; the epoch stays
UPDATE onrecord.leases SET holder = NULL
WHERE tenant = %(tenant)s AND session = %(session)s AND lane = %(lane)s AND epoch = %(epoch)s

-- leases: who holds which lane of a session
SELECT lane, epoch, holder, since, until FROM onrecord.leases
WHERE tenant = %(tenant)s AND session = %(session)s AND holder IS NOT NULL ORDER BY lane

-- save_snapshots: snapshots in place of the older ones, unless payloads were erased since
INSERT INTO onrecord.snapshots (tenant, session, view, position, hash, body)
SELECT s.tenant, s.session, n.view, n.position, n.hash, n.body
FROM unnest(%(sessions)s::text[], %(views)s::text[], %(positions)s::bigint[], %(hashes)s::bytea[], %(bodies)s::bytea[])
    AS n (session, view, position, hash, body) JOIN onrecord.sessions AS s
    ON s.tenant = %(tenant)s AND s.session = n.session AND s.scrubbed <= n.position
FOR SHARE OF s
ON CONFLICT (tenant, session, view) DO UPDATE
SET position = excluded.position, hash = excluded.hash, body = excluded.body

-- snapshots: the kept snapshots of a view, of some sessions
SELECT session, position, hash, body FROM onrecord.snapshots
WHERE tenant = %(tenant)s AND session = ANY (%(sessions)s::text[]) AND view = %(view)s

-- drop_snapshots: every snapshot of some sessions
DELETE FROM onrecord.snapshots WHERE tenant = %(tenant)s AND session = ANY (%(sessions)s)

-- drop_every_snapshot: every snapshot of the tenant
DELETE FROM onrecord.snapshots WHERE tenant = %(tenant)s

-- weigh: what payloads of some kinds occupy
SELECT e.position, e.kind,
    CASE e.encoding WHEN 2 THEN (SELECT length(b.body) FROM onrecord.blobs AS b WHERE b.tenant = %(tenant)s AND b.key = e.payload)
        ELSE length(e.payload) END
FROM onrecord.events AS e
WHERE e.tenant = %(tenant)s AND e.session = %(session)s AND e.payload IS NOT NULL
    AND (%(kinds)s::text[] IS NULL OR e.kind = ANY (%(kinds)s::text[]))
ORDER BY e.position

-- blob_keys: under which keys the payloads of some events are kept, if out of line
SELECT DISTINCT payload FROM onrecord.events
WHERE tenant = %(tenant)s AND session = %(session)s AND position = ANY (%(positions)s) AND encoding = 2 AND payload IS NOT NULL

-- erase: remove payloads and salts of some events
SELECT onrecord.erase(%(session)s, %(positions)s, %(said_at)s)

-- drop_unused: remove large payloads that no event uses any more
SELECT onrecord.drop_unused(%(keys)s)

-- drop_words: forget the words of some events
DELETE FROM onrecord.words WHERE tenant = %(tenant)s AND session = %(session)s AND position = ANY (%(positions)s)

-- scrub: forbid older snapshots of the session and of every session that inherits from it
WITH RECURSIVE tree (session) AS (
    SELECT session FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s
    UNION
    SELECT s.session FROM tree JOIN onrecord.sessions AS s ON s.tenant = %(tenant)s AND s.parent = tree.session
)
UPDATE onrecord.sessions AS s SET scrubbed = s.position + CASE WHEN s.session = %(session)s THEN 0 ELSE 1 END
FROM tree WHERE s.tenant = %(tenant)s AND s.session = tree.session RETURNING s.session

-- behind: sessions with events that search has not indexed yet; those with a key of their own never are, so that no word is left
SELECT session, indexed, position, scrubbed, key_id IS NOT NULL FROM onrecord.sessions
WHERE tenant = %(tenant)s AND behind AND (%(project)s::text IS NULL OR project = %(project)s)
    AND (%(session)s::text IS NULL OR session = %(session)s)
ORDER BY session

-- index_words: the words of adjacent events, unless the session was indexed or scrubbed meanwhile
WITH reached AS (
    UPDATE onrecord.sessions SET indexed = %(upto)s, behind = position > %(upto)s
    WHERE tenant = %(tenant)s AND session = %(session)s AND indexed = %(after)s AND scrubbed = %(scrubbed)s
    RETURNING tenant, session
), added AS (
    INSERT INTO onrecord.words (tenant, session, position, words)
    SELECT reached.tenant, reached.session, new.position, new.words::tsvector
    FROM reached, unnest(%(positions)s::bigint[], %(words)s::text[]) AS new (position, words)
)
SELECT 1 FROM reached

-- search: events that have all words
SELECT session, position FROM onrecord.found(%(query)s, %(project)s, %(session)s, %(limit)s)

-- too_many_words: events that search has to read itself
SELECT w.session, w.position
FROM onrecord.words AS w JOIN onrecord.sessions AS s ON s.tenant = w.tenant AND s.session = w.session
WHERE w.tenant = %(tenant)s AND w.words IS NULL AND (%(project)s::text IS NULL OR s.project = %(project)s)
    AND (%(session)s::text IS NULL OR w.session = %(session)s)

-- key_of: the id of a session's own key, if it has one
SELECT key_id FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s

-- session_keys: whether every new session of the tenant gets a key of its own
SELECT 1 FROM onrecord.tenants WHERE tenant = %(tenant)s AND session_keys

-- keyed_sessions: the sessions with a key of their own
SELECT session, key_id, status FROM onrecord.sessions WHERE tenant = %(tenant)s AND key_id IS NOT NULL ORDER BY session

-- change_head: move the head of a copied log
UPDATE onrecord.sessions
SET project = %(project)s, name = %(name)s, position = %(position)s, hash = %(hash)s, run = %(run)s, status = %(status)s,
    title = %(title)s, opened_at = %(opened_at)s, at = %(at)s, held = %(held)s, moment = %(moment)s, behind = TRUE
WHERE tenant = %(tenant)s AND session = %(session)s

-- mark_arrived: a log came from elsewhere up to a position
UPDATE onrecord.sessions SET arrived = greatest(arrived, %(position)s::bigint)
WHERE tenant = %(tenant)s AND session = %(session)s

-- arrived: how far a log came from elsewhere
SELECT arrived FROM onrecord.sessions WHERE tenant = %(tenant)s AND session = %(session)s

-- add_events: events of a copied log
INSERT INTO onrecord.events
    (tenant, session, position, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding, payload)
SELECT %(tenant)s, %(session)s, new.*
FROM unnest(
    %(positions)s::bigint[], %(ids)s::text[], %(kinds)s::text[], %(vs)s::bigint[], %(ats)s::bigint[], %(bys)s::text[],
    %(runs)s::bigint[], %(becauses)s::bigint[], %(salts)s::bytea[], %(payload_hashes)s::bytea[], %(hashes)s::bytea[],
    %(encodings)s::bigint[], %(payloads)s::bytea[]
) AS new

-- server: what this server is and promises, as it is inside a transaction of ours
SELECT current_setting('server_version') AS server, current_setting('server_version_num')::bigint AS server_number,
    pg_is_in_recovery() AS standby, current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    current_setting('synchronous_standby_names') AS synchronous_standby_names, current_user::text AS role,
    r.rolsuper AS superuser, r.rolbypassrls AS bypasses_rls, pg_database_size(current_database()) AS bytes
FROM pg_roles AS r WHERE r.rolname = current_user

-- counts: how much is kept for this tenant
SELECT count(*) AS sessions, coalesce(sum(position - forked_at), 0)::bigint AS events,
    (SELECT count(*) FROM onrecord.blobs WHERE tenant = %(tenant)s) AS blobs,
    (SELECT count(*) FROM onrecord.snapshots WHERE tenant = %(tenant)s) AS snapshots,
    (SELECT count(*) FROM onrecord.leases WHERE tenant = %(tenant)s AND holder IS NOT NULL) AS leases
FROM onrecord.sessions WHERE tenant = %(tenant)s

-- tables: the tables of the store: their owner, whether row-level security binds every role, and their dead rows
SELECT c.relname::text AS name, pg_get_userbyid(c.relowner)::text AS owner, c.relrowsecurity AND c.relforcerowsecurity AS forced,
    coalesce(s.n_live_tup, 0) AS live, coalesce(s.n_dead_tup, 0) AS dead, pg_total_relation_size(c.oid) AS bytes,
    (has_table_privilege(c.oid, 'UPDATE') OR has_table_privilege(c.oid, 'DELETE')) AS changeable
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_stat_user_tables AS s ON s.relid = c.oid
WHERE n.nspname = 'onrecord' AND c.relkind IN ('r', 'p') ORDER BY c.relname

-- standbys: the standbys of this server, and how many bytes behind; a role without pg_read_all_stats sees only that they exist
SELECT application_name AS name, state, sync_state, pg_wal_lsn_diff(pg_current_wal_lsn(), flush_lsn)::bigint AS behind
FROM pg_stat_replication ORDER BY application_name
