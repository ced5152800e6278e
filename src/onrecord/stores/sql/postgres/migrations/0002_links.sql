-- Finds the sessions that have a vendor's conversation on record; every other event leaves it alone. Made beside the work of others; what
-- an attempt that was cut off left behind goes first.
DROP INDEX CONCURRENTLY IF EXISTS onrecord.events_by_link;

CREATE INDEX CONCURRENTLY events_by_link ON onrecord.events (tenant, id) WHERE id >= 'link/' AND id < 'link0';
