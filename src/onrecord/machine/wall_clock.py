"""Times as the clock on the wall shows them: local, and with the name of the zone. For terminals and notifications.

What programs read, and what leaves this machine, has times in UTC (`views/render.iso`). On the live page the browser
does the same with its own clock.
"""

from __future__ import annotations

import time

_DAY = 86_400


def local_time(moment: int, now: int) -> str:
    """A moment, as short as it is clear: `14:05 CET`, `Tue 14:05 CET`, `2026-05-18 14:05 CEST`."""
    then = time.localtime(moment / 1e6)
    if time.localtime(now / 1e6)[:3] == then[:3]:
        return time.strftime("%H:%M %Z", then)
    return time.strftime("%a %H:%M %Z" if 0 <= (moment - now) / 1e6 < 6 * _DAY else "%Y-%m-%d %H:%M %Z", then)


def local_second(moment: int) -> str:
    """The time of day of a moment, to the second: `14:05:06 CET`."""
    return time.strftime("%H:%M:%S %Z", time.localtime(moment / 1e6))


def local_day(moment: int) -> str:
    """The day of a moment: `2026-05-18`."""
    return time.strftime("%Y-%m-%d", time.localtime(moment / 1e6))
