"""`python -m onrecord`: the same command as `onrecord`."""

import sys

from onrecord.surfaces.entry import main

if __name__ == "__main__":
    sys.exit(main())
