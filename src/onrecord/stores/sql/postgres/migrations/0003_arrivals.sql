-- How far a session's log came from elsewhere. What it says up to this position is data of another store: nothing runs on its word.
ALTER TABLE onrecord.sessions ADD COLUMN IF NOT EXISTS arrived BIGINT NOT NULL DEFAULT 0;

-- The only way to change an event: payload and salt go, header and hashes stay. What may go is what the erasure event in the same log
-- names, and nothing while the log says that the session has a hold: events cannot be changed by the app role, a row of `sessions` can.
-- The tenant's policy holds in here as well, since the owner is under it too.
CREATE OR REPLACE FUNCTION onrecord.erase(of_session TEXT, positions BIGINT[], said_at BIGINT) RETURNS BIGINT
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
