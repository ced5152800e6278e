"""WHERE LOGS ARE KEPT: memory (the specification in code), SQLite (the default), PostgreSQL (many machines)."""
