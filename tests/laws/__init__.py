"""Properties that hold for every log: folds, idempotency, snapshots, codec."""
