"""The kill matrix: each planted fault against each way of looking, and what the usual rules make of the same cases."""
