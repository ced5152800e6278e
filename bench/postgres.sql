-- The statements of the benchmarks of the PostgreSQL store. A block begins with `-- name: what it does`; its statements run in order.

-- raw_tables: the same tables, keys and indexes as the store's
CREATE SCHEMA raw;

CREATE TABLE raw.sessions (LIKE onrecord.sessions INCLUDING ALL);

CREATE TABLE raw.events (LIKE onrecord.events INCLUDING ALL);

-- raw_session: a session for a raw writer
INSERT INTO raw.sessions
    (tenant, session, project, name, position, hash, run, status, title, opened_at, at, held, forked_at, moment)
VALUES ('default', %(session)s, 'bench', %(session)s, 0, '', 1, 'active', '', 0, 0, FALSE, 0, 0)
ON CONFLICT DO NOTHING;

-- raw_append: the same rows in one statement, which is one transaction: the minimum
WITH moved AS (
    UPDATE raw.sessions SET position = position + 1, hash = %(hash)s, at = %(at)s
    WHERE tenant = 'default' AND session = %(session)s RETURNING position
)
INSERT INTO raw.events
    (tenant, session, position, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding, payload)
SELECT 'default', %(session)s, position, %(id)s, 'turn.recorded', 1, %(at)s, 'main', 1, NULL, %(salt)s, %(hash)s, %(hash)s, 1,
    %(payload)s
FROM moved;

-- raw_transaction: the same rows in two statements, as people usually write them
UPDATE raw.sessions SET position = position + 1, hash = %(hash)s, at = %(at)s
WHERE tenant = 'default' AND session = %(session)s RETURNING position;

INSERT INTO raw.events
    (tenant, session, position, id, kind, v, at, by, run, because, salt, payload_hash, hash, encoding, payload)
VALUES ('default', %(session)s, %(position)s, %(id)s, 'turn.recorded', 1, %(at)s, 'main', 1, NULL, %(salt)s, %(hash)s, %(hash)s, 1,
    %(payload)s);

-- The rows in bulk have the shape and size of real ones, but no hash chain. Values: low and high number.

-- sessions: heads and names without events, a hundred projects, one second apart
INSERT INTO onrecord.sessions
    (tenant, session, project, name, position, hash, run, status, title, opened_at, at, held, forked_at, moment, behind)
SELECT 'default', '01' || lpad(to_hex(n), 24, '0'), 'bulk-' || n %% 100, 'session-' || n, 1, sha256(n::text::bytea), 1, 'open',
    convert_to('The objective of session ' || n, 'UTF8'), 1, 1700000000000000 + n * 1000000, FALSE, 0,
    (1700000000000000 + n * 1000000) >> 20, FALSE
FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS n;

INSERT INTO onrecord.names (tenant, project, name, session)
SELECT 'default', 'bulk-' || n %% 100, 'session-' || n, '01' || lpad(to_hex(n), 24, '0')
FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS n;

-- events: sessions of a hundred events each, a payload of 267 bytes that does not compress away
INSERT INTO onrecord.sessions
    (tenant, session, project, name, position, hash, run, status, title, opened_at, at, held, forked_at, moment, behind)
SELECT 'default', '02' || md5(n::text), 'bulk', 'bulk-' || n, 100, sha256(n::text::bytea), 1, 'active',
    convert_to('In bulk', 'UTF8'), 1, 1700000000000000 + n, FALSE, 0, (1700000000000000 + n) >> 20, FALSE
FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS n;

INSERT INTO onrecord.events
    (tenant, session, position, id, kind, v, at, by, run, salt, payload_hash, hash, encoding, payload)
SELECT 'default', '02' || md5(n::text), p, md5(n || '/' || p), 'worklog.written', 1, 1700000000000000 + n, 'main', 1,
    decode(md5(p::text), 'hex'), sha256(p::text::bytea), sha256((n || '.' || p)::bytea), 0,
    convert_to('{"text":"' || repeat(md5(p || '.' || n), 8) || '"}', 'UTF8')
FROM generate_series(%(low)s::bigint, %(high)s::bigint) AS n, generate_series(1, 100) AS p;
