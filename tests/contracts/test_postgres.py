"""PostgreSQL passes the same contract as every store."""

import pytest

from onrecord.machine.session_keys import SessionKeys
from onrecord.stores.postgres import PostgresStore
from onrecord.stores.postgres.address import address_of
from onrecord.stores.postgres.people import use_session_keys
from onrecord.testing import StoreContract
from tests.postgres.servers import APP, OWNER, Stores


class TestPostgresStore(StoreContract):
    stores: Stores

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, postgres):
        cls.stores = postgres

    def make_store(self):
        return PostgresStore(self.stores.empty_store(), clock=self.clock)


class TestKeyedPostgresStore(TestPostgresStore):
    """Every session has a key of its own; nothing else differs."""

    @pytest.fixture(autouse=True)
    def _keys(self, tmp_path):
        self.keys = SessionKeys(str(tmp_path / "keys"), lambda: bytes(32))

    def make_store(self):
        url = self.stores.empty_store()
        assert use_session_keys(address_of(url.replace(f"//{APP}@", f"//{OWNER}@")))
        return PostgresStore(url, clock=self.clock, session_keys=lambda: self.keys)
