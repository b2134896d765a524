"""Does an engine keep what it claims? Any engine, spoken to by token ids alone, held to its own contract."""
