-- LISTEN and NOTIFY, which only wake the followers of a session sooner. Where a server or a pooler has neither, followers poll as
-- they always do; so these two are the only statements that another engine may refuse.

-- notify: wake the followers of a session
SELECT pg_notify('onrecord', %(mark)s)

-- listen: be woken
LISTEN onrecord
