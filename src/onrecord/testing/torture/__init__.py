"""SessionStoreTorture: twelve attacks on a store of agent sessions, of any framework.

    from onrecord.testing import SessionStoreTorture

    class TestMyStore(SessionStoreTorture):
        driver = "my_package.torture:MyDriver"

A driver says how a framework saves a turn, reads a session and resumes an agent; see `Driver`. Everything that happens
to a store happens in processes of its own, which are killed. Nothing here needs pytest to be imported.
"""

from onrecord.testing.torture.attacks import ATTACKS, Outcome, SessionStoreTorture
from onrecord.testing.torture.driver import Driver, Refused, Turn

__all__ = ["ATTACKS", "Driver", "Outcome", "Refused", "SessionStoreTorture", "Turn"]
