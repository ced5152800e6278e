-- The whole schema of a store in PostgreSQL, as it is after the last migration (a test proves that both agree).
-- `onrecord store init` runs it as the owner role; an older store gets the migrations it has not seen. A statement ends with a
-- semicolon and an empty line.
--
-- It keeps to what PostgreSQL shares with Aurora, Citus, CockroachDB and YugabyteDB: (tenant, session) leads the key of everything
-- that belongs to a session, so that these tables can be partitioned by hash or distributed; no sequence, no trigger, no advisory or
-- table lock, no deferred constraint, no temporary table. Positions come from the head row. Text is compared by its bytes.

-- Facts about this store itself: `schema` is the last migration, `usable_from` the oldest schema whose clients may still work with
-- it, `secret` keys the names of blobs. Not for settings: a store behaves the same for every client.
CREATE TABLE onrecord.meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- One row per session: its head, which every append moves from the expected position to the next in one statement, so that no two
-- processes can make the same step. A row is never deleted: the id of a session stays taken for good. Not the truth about the
-- session: what is here can be folded again from the events, except for the last three columns, which only say what caches may do.
-- The title is bytes because a title may hold what a TEXT of PostgreSQL cannot (a zero byte).
CREATE TABLE onrecord.sessions (
    tenant TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    run BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    title BYTEA NOT NULL,
    opened_at BIGINT NOT NULL,
    at BIGINT NOT NULL,
    held BOOLEAN NOT NULL,
    parent TEXT COLLATE "C",
    forked_at BIGINT NOT NULL,
    -- `at` in steps of a second (at >> 20): lists are sorted by an index on it, which a burst of appends leaves alone.
    moment BIGINT NOT NULL,
    -- The position below which no snapshot may be kept any more, because payloads were erased since.
    scrubbed BIGINT NOT NULL DEFAULT 0,
    -- How far search has come, and whether it is behind. A flag of its own, so that only its changes touch an index.
    indexed BIGINT NOT NULL DEFAULT 0,
    behind BOOLEAN NOT NULL DEFAULT TRUE,
    -- How far the log came from elsewhere. What it says up to this position is data of another store: nothing runs on its word.
    arrived BIGINT NOT NULL DEFAULT 0,
    -- The id of the session's own key, which is outside of the store; NULL: it has none. Its payloads, title and snapshots are encrypted.
    key_id TEXT COLLATE "C",
    PRIMARY KEY (tenant, session)
);

CREATE INDEX sessions_by_moment ON onrecord.sessions (tenant, moment);

CREATE INDEX sessions_of_project ON onrecord.sessions (tenant, project, moment);

CREATE INDEX sessions_by_name ON onrecord.sessions (tenant, name);

CREATE INDEX sessions_by_parent ON onrecord.sessions (tenant, parent) WHERE parent IS NOT NULL;

CREATE INDEX sessions_behind ON onrecord.sessions (tenant, session) WHERE behind;

-- Who has which name. A table of its own: a session's row is found by its id and may lie in any partition, while a name must be
-- unique among all sessions of a project.
CREATE TABLE onrecord.names (
    tenant TEXT COLLATE "C" NOT NULL,
    project TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, project, name)
);

-- The log: one row per event, never updated except that erasure sets salt and payload to NULL, through `erase` below.
-- `encoding` says how the payload is kept: 0 as it is, 1 compressed with zstd, 2 under this key in `blobs`, 3 encrypted with the session's own key. A fork's inherited events
-- are not copied: they are read where they are. No foreign key to `sessions`: every insert joins the head row it has just moved.
CREATE TABLE onrecord.events (
    tenant TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    v BIGINT NOT NULL,
    at BIGINT NOT NULL,
    by TEXT COLLATE "C" NOT NULL,
    run BIGINT NOT NULL,
    because BIGINT,
    salt BYTEA,
    payload_hash BYTEA NOT NULL,
    hash BYTEA NOT NULL,
    encoding SMALLINT NOT NULL,
    payload BYTEA,
    PRIMARY KEY (tenant, session, position),
    UNIQUE (tenant, session, id)
);

-- Finds the sessions that have a vendor's conversation on record; every other event leaves it alone.
CREATE INDEX events_by_link ON onrecord.events (tenant, id) WHERE id >= 'link/' AND id < 'link0';

-- Finds the events that use a large payload: in an audited tenant it decides who sees it.
CREATE INDEX events_by_blob ON onrecord.events (tenant, payload) WHERE encoding = 2;

-- Large payloads, compressed with zstd, each content once per tenant. The key is a hash keyed with this store's secret: a key does
-- not reveal whether a guessed content is here. `uses` counts the events: an append and an erasure that meet must both see it.
CREATE TABLE onrecord.blobs (
    tenant TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL,
    uses BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (tenant, key)
);

-- Who may write the turns of a lane, on the database's clock. A released lease stays as a row without a holder, so that epochs never
-- repeat. An append locks this row against a new holder while it compares its epoch.
CREATE TABLE onrecord.leases (
    tenant TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    lane TEXT COLLATE "C" NOT NULL,
    epoch BIGINT NOT NULL,
    holder TEXT,
    since BIGINT NOT NULL,
    until BIGINT NOT NULL,
    span BIGINT NOT NULL,
    PRIMARY KEY (tenant, session, lane)
);

-- Views as they were after a position, one per session and view. A cache: deleting every row changes nothing but speed.
CREATE TABLE onrecord.snapshots (
    tenant TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    view TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    hash BYTEA NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (tenant, session, view)
);

-- The words of payloads, for search. It lags behind the log: search brings it up to date first, append never touches it. The words
-- come folded by `log/text.py` and begin with a mark of their tenant, so that a search reads its own tenant's part of the index.
-- NULL: more words than a TSVECTOR holds; search reads such an event itself.
CREATE TABLE onrecord.words (
    tenant TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    words TSVECTOR,
    PRIMARY KEY (tenant, session, position)
);

CREATE INDEX words_by_word ON onrecord.words USING gin (words);

CREATE INDEX words_too_many ON onrecord.words (tenant, session, position) WHERE words IS NULL;

-- Which login may work for which tenant, and how: a `writer` does what a store does, an `auditor` only reads. `*` is every tenant, for a
-- service that its tenants trust. Only the owner changes it (`onrecord store grant`); a login sees its own rows. Every policy below asks it
-- with the name that the connection logged in with, which no statement of a client can change.
CREATE TABLE onrecord.members (
    tenant TEXT COLLATE "C" NOT NULL,
    login TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL CHECK (role IN ('writer', 'auditor')),
    at BIGINT NOT NULL,
    by TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, login)
);

-- What the owner decided about a tenant: from when on its readers have to sign, and after how many days what is erased (JSON, as in the
-- settings). A tenant without a row has neither.
CREATE TABLE onrecord.tenants (
    tenant TEXT COLLATE "C" PRIMARY KEY,
    audited_from BIGINT,
    retention TEXT,
    -- Whether every new session of the tenant gets a key of its own.
    session_keys BOOLEAN NOT NULL DEFAULT FALSE
);

-- Who read which session of an audited tenant, once per hour; `*` is a search in all sessions. Rows come only through `sign` below, and
-- no login can change or delete one. `name` is the session's at that time. In an audited tenant a login sees the content of the sessions that it signed for in this hour or the
-- last, and of no other.
CREATE TABLE onrecord.reads (
    tenant TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    login TEXT COLLATE "C" NOT NULL,
    hour BIGINT NOT NULL,
    at BIGINT NOT NULL,
    name TEXT COLLATE "C",
    PRIMARY KEY (tenant, session, login, hour)
);

-- A login sees its own rows in `members` and `reads`; an auditor also sees who else read.
ALTER TABLE onrecord.members ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE onrecord.tenants ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE onrecord.reads ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_login ON onrecord.members FOR SELECT TO PUBLIC
    USING (login = session_user::text);

CREATE POLICY of_owner ON onrecord.members TO {owner}
    USING (TRUE);

CREATE POLICY of_tenant ON onrecord.tenants FOR SELECT TO PUBLIC
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

CREATE POLICY of_owner ON onrecord.tenants TO {owner}
    USING (TRUE);

CREATE POLICY of_login ON onrecord.reads FOR SELECT TO PUBLIC
    USING (login = session_user::text);

CREATE POLICY of_auditor ON onrecord.reads FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

CREATE POLICY of_owner ON onrecord.reads TO {owner}
    USING (TRUE);

-- Every row belongs to a tenant. A transaction sees those of the tenant that it names in `onrecord.tenant`, if its login is a member
-- of that tenant; if not, or without a name, none. FORCE: the owner too.
ALTER TABLE onrecord.sessions ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_tenant ON onrecord.sessions TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER TABLE onrecord.names ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_tenant ON onrecord.names TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER TABLE onrecord.events ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_tenant ON onrecord.events TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR session IN (
        SELECT r.session FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1
    ) OR id >= 'link/' AND id < 'link0'))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER TABLE onrecord.blobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_tenant ON onrecord.blobs TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR EXISTS (
        SELECT FROM onrecord.events AS e WHERE e.tenant = blobs.tenant AND e.encoding = 2 AND e.payload = blobs.key
    )))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER TABLE onrecord.leases ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_tenant ON onrecord.leases TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER TABLE onrecord.snapshots ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_tenant ON onrecord.snapshots TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR session IN (
        SELECT r.session FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1
    )))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER TABLE onrecord.words ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY of_tenant ON onrecord.words TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR session IN (
        SELECT r.session FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1
    ) OR EXISTS (
        SELECT FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1 AND r.session = '*'
    )))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

-- An auditor reads the same, and writes nothing.
CREATE POLICY of_auditor ON onrecord.sessions FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

CREATE POLICY of_auditor ON onrecord.names FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

CREATE POLICY of_auditor ON onrecord.events FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR session IN (
        SELECT r.session FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1
    ) OR id >= 'link/' AND id < 'link0'));

CREATE POLICY of_auditor ON onrecord.blobs FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR EXISTS (
        SELECT FROM onrecord.events AS e WHERE e.tenant = blobs.tenant AND e.encoding = 2 AND e.payload = blobs.key
    )));

CREATE POLICY of_auditor ON onrecord.leases FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

CREATE POLICY of_auditor ON onrecord.snapshots FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR session IN (
        SELECT r.session FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1
    )));

CREATE POLICY of_auditor ON onrecord.words FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ) AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR session IN (
        SELECT r.session FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1
    ) OR EXISTS (
        SELECT FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1 AND r.session = '*'
    )));

-- What the functions of the owner may do: the same as the login that calls them. A superuser, whom no policy binds, may call them too.
CREATE POLICY in_functions ON onrecord.sessions FOR SELECT TO {owner}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM pg_catalog.pg_roles AS p
        WHERE p.rolname = session_user AND (p.rolsuper OR p.rolbypassrls OR EXISTS (
            SELECT FROM onrecord.members AS m
            WHERE m.login = session_user::text AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*')
        ))
    ));

CREATE POLICY in_functions ON onrecord.events TO {owner}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM pg_catalog.pg_roles AS p
        WHERE p.rolname = session_user AND (p.rolsuper OR p.rolbypassrls OR EXISTS (
            SELECT FROM onrecord.members AS m
            WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*')
        ))
    ));

CREATE POLICY in_functions ON onrecord.blobs TO {owner}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM pg_catalog.pg_roles AS p
        WHERE p.rolname = session_user AND (p.rolsuper OR p.rolbypassrls OR EXISTS (
            SELECT FROM onrecord.members AS m
            WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*')
        ))
    ));

CREATE POLICY of_search ON onrecord.words FOR SELECT TO CURRENT_USER USING (TRUE);

-- Under a tenant's policy PostgreSQL uses no text index, since it does not trust `@@` with rows of others. So the owner, who never
-- connects, may read the words of all tenants, and only through this function, which filters by tenant itself. The policy of `sessions`
-- holds in here as well: who is no member of the tenant finds nothing.
CREATE FUNCTION onrecord.found(query TEXT, of_project TEXT, of_session TEXT, most BIGINT)
RETURNS TABLE (session TEXT, "position" BIGINT)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT w.session, w.position
    FROM onrecord.words AS w JOIN onrecord.sessions AS s ON s.tenant = w.tenant AND s.session = w.session
    WHERE w.tenant = current_setting('onrecord.tenant', TRUE) AND w.words @@ query::tsquery
        AND (of_project IS NULL OR s.project = of_project) AND (of_session IS NULL OR w.session = of_session)
        AND ((SELECT NOT EXISTS (
        SELECT FROM onrecord.tenants AS t
        WHERE t.tenant = current_setting('onrecord.tenant', TRUE) AND t.audited_from <= extract(EPOCH FROM statement_timestamp()) * 1000000
    )) OR EXISTS (
            SELECT FROM onrecord.reads AS r
        WHERE r.tenant = current_setting('onrecord.tenant', TRUE) AND r.login = session_user::text
            AND r.hour >= floor(extract(EPOCH FROM statement_timestamp()) / 3600) - 1 AND r.session IN ('*', of_session)
        ))
    ORDER BY w.session DESC, w.position DESC LIMIT most
$$;

-- The only way to change an event: payload and salt go, header and hashes stay. What may go is what the erasure event in the same log
-- names, and nothing while the log says that the session has a hold: events cannot be changed by the app role, a row of `sessions` can.
-- The tenant's policy holds in here as well, since the owner is under it too.
CREATE FUNCTION onrecord.erase(of_session TEXT, positions BIGINT[], said_at BIGINT) RETURNS BIGINT
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH said AS (
        SELECT e.tenant, e.session, convert_from(e.payload, 'UTF8')::json -> 'ranges' AS ranges
        FROM onrecord.events AS e
        WHERE e.tenant = current_setting('onrecord.tenant', TRUE) AND e.session = of_session AND e.position = said_at
            AND e.kind = 'payload.erased' AND e.encoding = 0 AND (
                SELECT h.kind FROM onrecord.events AS h
                WHERE h.tenant = e.tenant AND h.session = e.session AND h.kind IN ('session.held', 'session.released')
                ORDER BY h.position DESC LIMIT 1
            ) IS DISTINCT FROM 'session.held'
    ), allowed AS (
        SELECT DISTINCT said.tenant, said.session, n.position
        FROM said, json_array_elements(said.ranges) AS r,
            generate_series(greatest(1, (r ->> 0)::bigint), least((r ->> 1)::bigint, said_at - 1)) AS n (position)
        WHERE n.position = ANY (positions)
    ), before AS (
        SELECT e.tenant, e.payload FROM onrecord.events AS e
            JOIN allowed AS a ON e.tenant = a.tenant AND e.session = a.session AND e.position = a.position
        WHERE e.encoding = 2 AND e.payload IS NOT NULL
    ), unused AS (
        UPDATE onrecord.blobs AS b SET uses = b.uses - u.events
        FROM (SELECT tenant, payload, count(*) AS events FROM before GROUP BY tenant, payload) AS u
        WHERE b.tenant = u.tenant AND b.key = u.payload
    ), erased AS (
        UPDATE onrecord.events AS e SET salt = NULL, payload = NULL, encoding = 0
        FROM allowed AS a WHERE e.tenant = a.tenant AND e.session = a.session AND e.position = a.position
        RETURNING e.position
    )
    SELECT count(*) FROM erased
$$;

-- Large payloads that no event uses any more.
CREATE FUNCTION onrecord.drop_unused(keys BYTEA[]) RETURNS BIGINT
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH dropped AS (
        DELETE FROM onrecord.blobs
        WHERE tenant = current_setting('onrecord.tenant', TRUE) AND key = ANY (keys) AND uses <= 0 RETURNING 1
    )
    SELECT count(*) FROM dropped
$$;

-- Sign for reading some sessions of an audited tenant, and what they inherit from.
CREATE FUNCTION onrecord.sign(of_sessions TEXT[]) RETURNS BIGINT
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE named (session) AS (
        SELECT n COLLATE "C" FROM unnest(of_sessions) AS n WHERE length(n) <= 64
        UNION
        SELECT s.parent FROM named AS n JOIN onrecord.sessions AS s
            ON s.tenant = current_setting('onrecord.tenant', TRUE) AND s.session = n.session AND s.parent IS NOT NULL
    ), signed AS (
        INSERT INTO onrecord.reads (tenant, session, login, hour, at, name)
        SELECT m.tenant, n.session, session_user::text, floor(c.seconds / 3600), floor(c.seconds * 1000000), s.name
        FROM (SELECT extract(EPOCH FROM clock_timestamp()) AS seconds) AS c CROSS JOIN (
            SELECT current_setting('onrecord.tenant', TRUE) AS tenant FROM onrecord.members AS m
            WHERE m.login = session_user::text AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
        ) AS m CROSS JOIN named AS n LEFT JOIN onrecord.sessions AS s ON s.tenant = m.tenant AND s.session = n.session
        ON CONFLICT (tenant, session, login, hour) DO NOTHING RETURNING 1
    )
    SELECT count(*) FROM signed
$$;

-- Keep large payloads, each once, and count their uses. A function, since a writer of an audited tenant need not see what is there.
CREATE FUNCTION onrecord.keep(of_keys BYTEA[], of_uses BIGINT[], of_bodies BYTEA[]) RETURNS BIGINT
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH kept AS (
        INSERT INTO onrecord.blobs AS b (tenant, key, uses, body)
        SELECT current_setting('onrecord.tenant', TRUE), new.key, new.uses, new.body
        FROM unnest(of_keys, of_uses, of_bodies) AS new (key, uses, body) ORDER BY new.key
        ON CONFLICT (tenant, key) DO UPDATE SET uses = b.uses + excluded.uses RETURNING 1
    )
    SELECT count(*) FROM kept
$$;

REVOKE ALL ON FUNCTION onrecord.found(TEXT, TEXT, TEXT, BIGINT), onrecord.erase(TEXT, BIGINT[], BIGINT), onrecord.drop_unused(BYTEA[]),
    onrecord.sign(TEXT[]), onrecord.keep(BYTEA[], BIGINT[], BYTEA[]) FROM PUBLIC;
