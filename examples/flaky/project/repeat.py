"""Run one test in ten fresh processes and say how often it failed: `python repeat.py TEST`. Exit 1 when it did."""

import os
import subprocess
import sys

RUNS = 10

test = f"test_invites.TestInvites.{sys.argv[1]}"
failed = [
    seed
    for seed in range(RUNS)
    if subprocess.run(
        [sys.executable, "-m", "unittest", test], env=os.environ | {"PYTHONHASHSEED": str(seed)}, capture_output=True,
        check=False,
    ).returncode
]  # fmt: skip
print(f"{test}: failed {len(failed)}/{RUNS}" + (f", with hash seeds {failed}" if failed else ""))
sys.exit(bool(failed))
