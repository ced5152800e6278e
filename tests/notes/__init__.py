"""The note, STATE.md, the check of a note and the continuation report."""
