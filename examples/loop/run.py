"""Kills the agent of pay.py before its tool, in it and after it, and continues each time. Runs offline."""

import subprocess
import sys
import tempfile
from pathlib import Path

PAY = Path(__file__).with_name("pay.py")


def main() -> None:
    for moment in ("before", "in", "after"):
        with tempfile.TemporaryDirectory(prefix="onrecord-loop-") as place:
            for word in (moment, ""):
                print(f"[{moment}] $ python pay.py {word}".rstrip(), flush=True)
                subprocess.run([sys.executable, str(PAY), place, *([word] if word else [])], check=False)
            payments = Path(place, "payments.txt").read_text().splitlines()
            print(f"[{moment}] payments: {len(payments)}\n", flush=True)


if __name__ == "__main__":
    main()
