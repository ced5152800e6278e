-- LISTEN and NOTIFY, which only wake whoever follows a session sooner. Where a server or a pooler has neither, followers look again
-- and again as they do anyway; so these two are the only statements that another engine may refuse.

-- notify: wake whoever follows a session
SELECT pg_notify('onrecord', %(mark)s)

-- listen: be woken
LISTEN onrecord
