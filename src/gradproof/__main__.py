"""`python -m gradproof` is the command `gradproof`."""

import sys

from gradproof.cli import main

if __name__ == "__main__":
    sys.exit(main())
