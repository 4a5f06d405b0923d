"""One module for each command beside `run`."""
