"""Contract classes that prove a store or a vendor module of yours, and a clock set by hand.

    from onrecord.testing import StoreContract

    class TestMyStore(StoreContract):
        def make_store(self):
            return MyStore(clock=self.clock)

Every test of the class is then collected and run against the store. Nothing here needs pytest to be imported.
"""

from onrecord.testing.stores import StoreContract
from onrecord.testing.tools import FakeClock, Raised, derived, raises
from onrecord.testing.torture import SessionStoreTorture
from onrecord.testing.vendors import VendorContract

__all__ = ["FakeClock", "Raised", "SessionStoreTorture", "StoreContract", "VendorContract", "derived", "raises"]
