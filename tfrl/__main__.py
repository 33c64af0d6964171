"""`python -m tfrl` is the command `tfrl`."""

import sys

from tfrl import command

if __name__ == "__main__":
    sys.exit(command.main())
