"""The bench: whole runs of real processes, measured from outside, each figure against its ideal and its limit.

`python -m tools.bench` runs every case of `cases.CASES`, prints one table and writes one JSON file; it ends with status 1
where a limit is missed. README.md says what each case is.
"""
