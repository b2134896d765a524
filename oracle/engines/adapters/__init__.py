"""The adapters that come with the harness, one file for each engine; each imports its engine, and nothing else does."""
