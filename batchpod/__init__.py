"""One pod, one volume: the policy of a run, its commands and its verdicts."""

__version__ = "0.1.0"
