"""The live page: every session of a store in a browser, served by this process (extra `web`)."""
