"""Every store passes the same contract."""

import tempfile

from onrecord.machine.session_keys import SessionKeys
from onrecord.stores.memory import MemoryStore
from onrecord.stores.sqlite import SQLiteStore
from onrecord.testing import StoreContract


class TestMemoryStore(StoreContract):
    def make_store(self):
        return MemoryStore(clock=self.clock)


class TestSQLiteStore(StoreContract):
    durability = "full"

    def make_store(self):
        if not hasattr(self, "places"):
            self.places = []
        self.places.append(tempfile.TemporaryDirectory())
        return SQLiteStore(f"{self.places[-1].name}/store.db", durability=self.durability, clock=self.clock)

    def teardown_method(self):
        super().teardown_method()
        for place in self.places:
            place.cleanup()


class TestKeyedSQLiteStore(TestSQLiteStore):
    """Every session has a key of its own; nothing else differs."""

    def make_store(self):
        plain = super().make_store()
        plain.close()
        keys = SessionKeys(f"{self.places[-1].name}/keys", lambda: bytes(32))
        store = SQLiteStore(plain.path, clock=self.clock, session_keys=lambda _beside: keys)
        store.use_session_keys()
        return store


class TestFastSQLiteStore(TestSQLiteStore):
    durability = "fast"
