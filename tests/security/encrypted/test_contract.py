"""An encrypted store keeps every promise of a store."""

from onrecord.stores.sqlite import SQLiteStore
from tests.contracts import test_stores
from tests.security.encrypted.conftest import KEY


class TestEncryptedStore(test_stores.TestSQLiteStore):
    def make_store(self):
        place = super().make_store()  # a directory of its own; the plain store in it stays empty
        place.close()
        return SQLiteStore(place.path + "-encrypted", clock=self.clock, key=lambda: KEY)
