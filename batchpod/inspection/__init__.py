"""What the debug socket shows of a run, and what it may be told through it."""
