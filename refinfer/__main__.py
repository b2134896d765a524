"""Runs `python -m refinfer`."""

import sys

from refinfer.cli import main

if __name__ == "__main__":
    sys.exit(main())
