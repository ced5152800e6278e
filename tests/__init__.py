"""The tests, by realism: laws, contracts, stories, crash, cli, docs."""
