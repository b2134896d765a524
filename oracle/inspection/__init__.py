"""What did a run do, step by step and block by block, and where do two runs part? For the scripts of `debug`."""
