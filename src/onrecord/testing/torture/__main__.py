"""`python -m onrecord.testing.torture MODULE:CLASS [ATTACK...]`: run the attacks and print the outcomes as JSON."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from onrecord.errors import InvalidInput
from onrecord.testing.torture.attacks import ATTACKS, SessionStoreTorture
from onrecord.testing.torture.driver import driver_class


def main(words: list[str]) -> int:
    """Run what the words name; 0 if every attack was survived."""
    if not words or words[0].startswith("-") or not set(words[1:]) <= set(ATTACKS):
        sys.stderr.write(f"usage: python -m onrecord.testing.torture MODULE:CLASS [{' | '.join(ATTACKS)}]\n")
        return 2
    try:
        name = driver_class(words[0]).name
    except InvalidInput as problem:
        sys.stderr.write(f"{problem}; {problem.hint}\n")
        return 2
    kind: Any = type("Torture", (SessionStoreTorture,), {"driver": words[0]})
    outcomes = []
    for attack in words[1:] or ATTACKS:
        began = time.monotonic()
        (outcome,) = kind.run([attack])
        outcomes.append(outcome)
        found = f" (its check on demand finds {outcome.check})" if outcome.check else ""
        said = f"{attack} ({time.monotonic() - began:.1f} s) {outcome.said}{found}"
        sys.stderr.write(f"{'ok  ' if outcome.passed else 'LOST'} {said}\n")
    sys.stdout.write(json.dumps({"store": name, "outcomes": [outcome._asdict() for outcome in outcomes]}) + "\n")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
