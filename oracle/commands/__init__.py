"""The commands of `python -m oracle`, one file each."""
