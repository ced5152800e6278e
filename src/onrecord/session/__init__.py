"""THE CONDUCTOR: the handle callers hold, which joins the log, the views and a store. It does I/O only through that store."""
