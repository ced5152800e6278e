-- What the app role may do: everything a store needs and nothing more. It cannot change or delete an event or the content of a
-- blob, nor delete a session; erasure goes through `onrecord.erase`. It moves the head in the row of a session, which verification
-- derives again from the events. The auditor role only reads. The names of the roles replace {app} and {auditor}, as quoted
-- identifiers.
-- Run again after every migration; granting twice changes nothing.

GRANT USAGE ON SCHEMA onrecord TO {app};

GRANT SELECT ON onrecord.meta TO {app};

GRANT SELECT, INSERT, UPDATE ON onrecord.sessions TO {app};

GRANT SELECT, INSERT, DELETE ON onrecord.names TO {app};

GRANT SELECT, INSERT ON onrecord.events TO {app};

GRANT SELECT, INSERT, UPDATE (uses) ON onrecord.blobs TO {app};

GRANT SELECT, INSERT, UPDATE ON onrecord.leases TO {app};

GRANT SELECT, INSERT, UPDATE, DELETE ON onrecord.snapshots TO {app};

GRANT SELECT, INSERT, DELETE ON onrecord.words TO {app};

GRANT EXECUTE ON FUNCTION onrecord.found(TEXT, TEXT, TEXT, BIGINT), onrecord.erase(TEXT, BIGINT[], BIGINT),
    onrecord.drop_unused(BYTEA[]), onrecord.sign(TEXT[]), onrecord.keep(BYTEA[], BIGINT[], BYTEA[]) TO {app};

GRANT SELECT ON onrecord.members, onrecord.tenants, onrecord.reads TO {app};

GRANT USAGE ON SCHEMA onrecord TO {auditor};

GRANT SELECT ON onrecord.meta, onrecord.sessions, onrecord.names, onrecord.events, onrecord.blobs, onrecord.leases, onrecord.snapshots,
    onrecord.words, onrecord.members, onrecord.tenants, onrecord.reads TO {auditor};

GRANT EXECUTE ON FUNCTION onrecord.found(TEXT, TEXT, TEXT, BIGINT), onrecord.sign(TEXT[]) TO {auditor};
