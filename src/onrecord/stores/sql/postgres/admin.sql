-- What `onrecord store init` and `migrate` run besides schema and migrations. Names of roles are in braces and inserted as quoted
-- identifiers; everything else is bound.

-- role: whether a role exists
SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s

-- make_owner: the role that owns the tables; it cannot log in
CREATE ROLE {owner} NOLOGIN

-- make_app: the role that stores connect as; without a password it cannot log in where one is required
CREATE ROLE {app} LOGIN

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
