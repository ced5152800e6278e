"""Runs `onrecord` on a directory that is mounted read-only: `python -m tests.security.read_only ro|rw DIRECTORY COMMANDS`.

The mount is in a namespace of this process: no other process sees it, and it ends with it. With `rw`, the control, the
directory is mounted in the same way and stays writable. Each command's exit status and output is a line of JSON.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.crash.workers import mount, see_mounts_alone

SCRIPT = Path(sys.executable).with_name("onrecord")


def main(how: str, directory: str, commands: str) -> None:
    see_mounts_alone()
    mount("--bind", directory, directory)
    mount("-o", f"remount,bind,{how}", directory)
    for words in json.loads(commands):
        done = subprocess.run(
            [str(SCRIPT), *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )
        print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
