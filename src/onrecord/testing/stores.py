"""StoreContract: what every store owes, as tests. A store is whatever passes it."""

from onrecord.testing.keeping import (
    ErasureContract,
    LeaseContract,
    SearchContract,
    SnapshotContract,
    TakingOverContract,
)
from onrecord.testing.logs import AppendContract, ReadContract


class StoreContract(
    AppendContract,
    ReadContract,
    LeaseContract,
    SnapshotContract,
    SearchContract,
    ErasureContract,
    TakingOverContract,
):
    """Subclass it, say in `make_store` how an empty store is made on `self.clock`, and run it with pytest."""
