"""What a run is told: the table of variables, what they mean together, volumes.txt."""
