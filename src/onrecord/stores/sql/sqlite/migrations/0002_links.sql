-- Finds the sessions that have a vendor's conversation on record; every other event leaves it alone.
CREATE INDEX events_by_link ON events (id) WHERE id >= 'link/' AND id < 'link0';
