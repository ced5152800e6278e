"""Pages: a session as HTML, and the report in one file."""
