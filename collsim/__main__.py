"""``python -m collsim``."""

import sys

from collsim.cli import main

if __name__ == "__main__":
    sys.exit(main())
