"""PostgreSQL passes the same contract as every store."""

import pytest

from onrecord.stores.postgres import PostgresStore
from onrecord.testing import StoreContract
from tests.postgres.servers import Stores


class TestPostgresStore(StoreContract):
    stores: Stores

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def _server(cls, postgres):
        cls.stores = postgres

    def make_store(self):
        return PostgresStore(self.stores.empty_store(), clock=self.clock)
