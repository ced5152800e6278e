-- What `onrecord store init` and `migrate` run besides schema and migrations. Names of roles stand in braces and are quoted as
-- identifiers before they are put in; everything else is bound.

-- role: whether a role is there
SELECT 1 FROM pg_catalog.pg_roles WHERE rolname = %(name)s

-- make_owner: the role that owns the tables; nobody logs in as it
CREATE ROLE {owner} NOLOGIN

-- make_app: the role that stores connect as; without a password it cannot log in where one is asked for
CREATE ROLE {app} LOGIN

-- may_become: whether this connection may act as the owner
SELECT pg_catalog.pg_has_role(current_user, %(name)s, 'MEMBER')

-- join_owner: let whoever makes the store act as its owner
GRANT {owner} TO CURRENT_USER

-- make_schema: the place of everything
CREATE SCHEMA onrecord AUTHORIZATION {owner}

-- become: from here on as the owner
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
