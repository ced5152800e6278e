-- A login is bound to its tenants. Before, every login with the app role could name any tenant; those that exist keep that right
-- (`*`) until the owner takes it away, so that a store with one login works on as it is.
-- Which login may work for which tenant, and how: a `writer` does what a store does, an `auditor` only reads. `*` is every tenant, for a
-- service that its tenants trust. Only the owner changes it (`onrecord store grant`); a login sees its own rows. Every policy below asks it
-- with the name that the connection logged in with, which no statement of a client can change.
CREATE TABLE IF NOT EXISTS onrecord.members (
    tenant TEXT COLLATE "C" NOT NULL,
    login TEXT COLLATE "C" NOT NULL,
    role TEXT COLLATE "C" NOT NULL CHECK (role IN ('writer', 'auditor')),
    at BIGINT NOT NULL,
    by TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, login)
);

-- What the owner decided about a tenant: from when on its readers have to sign, and after how many days what is erased (JSON, as in the
-- settings). A tenant without a row has neither.
CREATE TABLE IF NOT EXISTS onrecord.tenants (
    tenant TEXT COLLATE "C" PRIMARY KEY,
    audited_from BIGINT,
    retention TEXT
);

-- Who read which session of an audited tenant, once per hour; `*` is a search in all sessions. Rows come only through `sign` below, and
-- no login can change or delete one. `name` is the session's at that time. In an audited tenant a login sees the content of the sessions that it signed for in this hour or the
-- last, and of no other.
CREATE TABLE IF NOT EXISTS onrecord.reads (
    tenant TEXT COLLATE "C" NOT NULL,
    session TEXT COLLATE "C" NOT NULL,
    login TEXT COLLATE "C" NOT NULL,
    hour BIGINT NOT NULL,
    at BIGINT NOT NULL,
    name TEXT COLLATE "C",
    PRIMARY KEY (tenant, session, login, hour)
);

-- Before the first policy: policies ask these with the rights of the login, and a login with the app role may be an auditor elsewhere.
GRANT SELECT ON onrecord.members, onrecord.tenants, onrecord.reads TO {app}, {auditor};

INSERT INTO onrecord.members (tenant, login, role, at, by)
SELECT '*', r.rolname::text, 'writer', floor(extract(EPOCH FROM clock_timestamp()) * 1000000), 'migration'
FROM pg_catalog.pg_roles AS r
WHERE r.rolcanlogin AND NOT r.rolsuper AND (pg_has_role(r.oid, {app_name}, 'MEMBER') OR pg_has_role(r.oid, {owner_name}, 'MEMBER'))
    AND NOT EXISTS (SELECT FROM onrecord.meta WHERE name = 'schema' AND value::bigint >= 4)
ON CONFLICT (tenant, login) DO NOTHING;

-- Finds the events that use a large payload: in an audited tenant it decides who sees it. It is created while clients
-- work; an index that an interrupted migration left behind is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS onrecord.events_by_blob;

CREATE INDEX CONCURRENTLY events_by_blob ON onrecord.events (tenant, payload) WHERE encoding = 2;

-- A login sees its own rows in `members` and `reads`; an auditor also sees who else read.
ALTER TABLE onrecord.members ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE onrecord.tenants ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

ALTER TABLE onrecord.reads ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

DROP POLICY IF EXISTS of_login ON onrecord.members;

CREATE POLICY of_login ON onrecord.members FOR SELECT TO PUBLIC
    USING (login = session_user::text);

DROP POLICY IF EXISTS of_owner ON onrecord.members;

CREATE POLICY of_owner ON onrecord.members TO {owner}
    USING (TRUE);

DROP POLICY IF EXISTS of_tenant ON onrecord.tenants;

CREATE POLICY of_tenant ON onrecord.tenants FOR SELECT TO PUBLIC
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

DROP POLICY IF EXISTS of_owner ON onrecord.tenants;

CREATE POLICY of_owner ON onrecord.tenants TO {owner}
    USING (TRUE);

DROP POLICY IF EXISTS of_login ON onrecord.reads;

CREATE POLICY of_login ON onrecord.reads FOR SELECT TO PUBLIC
    USING (login = session_user::text);

DROP POLICY IF EXISTS of_auditor ON onrecord.reads;

CREATE POLICY of_auditor ON onrecord.reads FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

DROP POLICY IF EXISTS of_owner ON onrecord.reads;

CREATE POLICY of_owner ON onrecord.reads TO {owner}
    USING (TRUE);

-- Under a tenant's policy PostgreSQL uses no text index, since it does not trust `@@` with rows of others. So the owner, who never
-- connects, may read the words of all tenants, and only through this function, which filters by tenant itself. The policy of `sessions`
-- holds in here as well: who is no member of the tenant finds nothing.
CREATE OR REPLACE FUNCTION onrecord.found(query TEXT, of_project TEXT, of_session TEXT, most BIGINT)
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

-- Sign for reading some sessions of an audited tenant, and what they inherit from.
CREATE OR REPLACE FUNCTION onrecord.sign(of_sessions TEXT[]) RETURNS BIGINT
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
CREATE OR REPLACE FUNCTION onrecord.keep(of_keys BYTEA[], of_uses BIGINT[], of_bodies BYTEA[]) RETURNS BIGINT
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

REVOKE ALL ON FUNCTION onrecord.sign(TEXT[]), onrecord.keep(BYTEA[], BIGINT[], BYTEA[]) FROM PUBLIC;

-- What functions of the owner may do, and what auditors may read.
DROP POLICY IF EXISTS in_functions ON onrecord.sessions;

CREATE POLICY in_functions ON onrecord.sessions FOR SELECT TO {owner}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM pg_catalog.pg_roles AS p
        WHERE p.rolname = session_user AND (p.rolsuper OR p.rolbypassrls OR EXISTS (
            SELECT FROM onrecord.members AS m
            WHERE m.login = session_user::text AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*')
        ))
    ));

DROP POLICY IF EXISTS in_functions ON onrecord.events;

CREATE POLICY in_functions ON onrecord.events TO {owner}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM pg_catalog.pg_roles AS p
        WHERE p.rolname = session_user AND (p.rolsuper OR p.rolbypassrls OR EXISTS (
            SELECT FROM onrecord.members AS m
            WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*')
        ))
    ));

DROP POLICY IF EXISTS in_functions ON onrecord.blobs;

CREATE POLICY in_functions ON onrecord.blobs TO {owner}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM pg_catalog.pg_roles AS p
        WHERE p.rolname = session_user AND (p.rolsuper OR p.rolbypassrls OR EXISTS (
            SELECT FROM onrecord.members AS m
            WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*')
        ))
    ));

DROP POLICY IF EXISTS of_auditor ON onrecord.sessions;

CREATE POLICY of_auditor ON onrecord.sessions FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

DROP POLICY IF EXISTS of_auditor ON onrecord.names;

CREATE POLICY of_auditor ON onrecord.names FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

DROP POLICY IF EXISTS of_auditor ON onrecord.events;

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

DROP POLICY IF EXISTS of_auditor ON onrecord.blobs;

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

DROP POLICY IF EXISTS of_auditor ON onrecord.leases;

CREATE POLICY of_auditor ON onrecord.leases FOR SELECT TO {auditor}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'auditor' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

DROP POLICY IF EXISTS of_auditor ON onrecord.snapshots;

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

DROP POLICY IF EXISTS of_auditor ON onrecord.words;

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

-- Last, since from here on a login has to be a member: each of these is one step for the clients that are at work.
ALTER POLICY of_tenant ON onrecord.sessions TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER POLICY of_tenant ON onrecord.names TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER POLICY of_tenant ON onrecord.events TO {app}
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

ALTER POLICY of_tenant ON onrecord.blobs TO {app}
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

ALTER POLICY of_tenant ON onrecord.leases TO {app}
    USING (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ))
    WITH CHECK (tenant = (
        SELECT current_setting('onrecord.tenant', TRUE) FROM onrecord.members AS m
        WHERE m.login = session_user::text AND m.role = 'writer' AND m.tenant IN (current_setting('onrecord.tenant', TRUE), '*') LIMIT 1
    ));

ALTER POLICY of_tenant ON onrecord.snapshots TO {app}
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

ALTER POLICY of_tenant ON onrecord.words TO {app}
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
