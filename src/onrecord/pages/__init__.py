"""A session as pages: pure functions from events and views to HTML, for the report in one file and the web page."""
