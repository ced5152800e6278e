-- What `onrecord store init` and `migrate` run besides schema and migrations. Names of roles are in braces and inserted as quoted
-- identifiers; everything else is bound.

-- role: whether a role exists
SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s

-- make_owner: the role that owns the tables; it cannot log in
CREATE ROLE {owner} NOLOGIN

-- make_app: the role that stores connect as; without a password it cannot log in where one is required
CREATE ROLE {app} LOGIN

-- make_auditor: the role of logins that only read; it cannot log in
CREATE ROLE {auditor} NOLOGIN

-- is_superuser: whether this connection may act as any role
SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user

-- join_owner: let the role that creates the store act as its owner
GRANT {owner} TO CURRENT_USER

-- make_schema: the schema that contains every table
CREATE SCHEMA onrecord AUTHORIZATION {owner}

-- become: act as the owner from here on
SET ROLE {owner}

-- be_patient: a change of the schema waits briefly for its lock and tries again, so that no append waits long behind it
SET lock_timeout = '2s'

-- is_store: whether there is a store in this database
SELECT 1 FROM information_schema.tables WHERE table_schema = 'onrecord' AND table_name = 'meta'

-- meta: the facts about this store
SELECT name, value FROM onrecord.meta

-- set_meta: one of them
INSERT INTO onrecord.meta (name, value) VALUES (%(name)s, %(value)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- version: which PostgreSQL this is
SELECT current_setting('server_version_num')::bigint, current_setting('server_version')

-- login: a login of this server, and whether policies bind it
SELECT rolcanlogin, rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE rolname = %(login)s

-- has_role: whether a login has the rights of a role
SELECT pg_has_role(%(login)s, %(role)s, 'USAGE')

-- join_app: give a login the rights that writers need
GRANT {app} TO {login}

-- join_auditor: give a login the rights that auditors need
GRANT {auditor} TO {login}

-- add_member: bind a login to a tenant, or change what it may do there
INSERT INTO onrecord.members AS m (tenant, login, role, at, by)
VALUES (%(tenant)s, %(login)s, %(role)s, floor(extract(EPOCH FROM clock_timestamp()) * 1000000), session_user::text)
ON CONFLICT (tenant, login) DO UPDATE SET role = excluded.role, at = excluded.at, by = excluded.by WHERE m.role <> excluded.role
RETURNING role

-- remove_member: take a tenant from a login
DELETE FROM onrecord.members
WHERE login = %(login)s AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s) RETURNING tenant

-- members: who may work for which tenant
SELECT login, tenant, role, at, by FROM onrecord.members
WHERE %(tenant)s::text IS NULL OR tenant IN (%(tenant)s, '*') ORDER BY tenant, login

-- unbound: logins that no policy binds: superusers, and those that may act as the owner
SELECT rolname::text, rolsuper OR rolbypassrls FROM pg_catalog.pg_roles
WHERE rolcanlogin AND (rolsuper OR rolbypassrls OR pg_has_role(oid, %(owner)s, 'MEMBER')) ORDER BY rolname

-- name_tenant: whose rows this transaction is about
SELECT set_config('onrecord.tenant', %(tenant)s, TRUE)

-- audited: from when on a tenant's reads are recorded
SELECT audited_from FROM onrecord.tenants WHERE tenant = %(tenant)s

-- audit: record a tenant's reads from a moment on, or no longer
INSERT INTO onrecord.tenants AS t (tenant, audited_from) VALUES (
    %(tenant)s,
    CASE WHEN %(seconds)s::bigint IS NULL THEN NULL
        ELSE floor(extract(EPOCH FROM clock_timestamp()) * 1000000)::bigint + %(seconds)s::bigint * 1000000 END
)
ON CONFLICT (tenant) DO UPDATE SET audited_from = excluded.audited_from
WHERE (t.audited_from IS NULL) <> (excluded.audited_from IS NULL)
RETURNING audited_from

-- reads: who read which session of a tenant, newest first
SELECT r.at, r.login, r.session, r.name FROM onrecord.reads AS r
WHERE r.tenant = %(tenant)s AND (%(session)s::text IS NULL OR r.session IN (%(session)s, '*') OR r.name = %(session)s)
ORDER BY r.at DESC, r.session, r.login LIMIT %(limit)s

-- retention: after how many days what is erased of a tenant
SELECT retention FROM onrecord.tenants WHERE tenant = %(tenant)s

-- use_session_keys: give every new session of a tenant a key of its own
INSERT INTO onrecord.tenants AS t (tenant, session_keys) VALUES (%(tenant)s, TRUE)
ON CONFLICT (tenant) DO UPDATE SET session_keys = TRUE WHERE NOT t.session_keys
RETURNING tenant

-- retain: decide that
INSERT INTO onrecord.tenants (tenant, retention) VALUES (%(tenant)s, %(retention)s)
ON CONFLICT (tenant) DO UPDATE SET retention = excluded.retention
