"""From red to cause: what makes a failing case fail, as far as it can be told."""
