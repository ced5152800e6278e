-- Finds the sessions that have a vendor's conversation on record; every other event leaves it alone. The index is created while
-- clients work; an index that an interrupted migration left behind is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS onrecord.events_by_link;

CREATE INDEX CONCURRENTLY events_by_link ON onrecord.events (tenant, id) WHERE id >= 'link/' AND id < 'link0';
