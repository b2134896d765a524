"""How is any engine spoken to? One protocol of plain data, and an adapter for each engine.

What an engine's own process needs of this package is written in the standard library alone, so that it runs in the
environment of the engine, where neither torch nor Hypothesis need be.
"""
