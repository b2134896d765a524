"""What can be done from a command line?"""

from refinfer.cli.main import main

__all__ = ["main"]
