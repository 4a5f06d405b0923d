"""Character error rate: the edit distance of two texts over the reference's length.

The distance is Levenshtein's: insertions, deletions and substitutions of code points, each at cost one.
Nothing is normalised first; a caller who wants NFC or folded white space does that himself.
"""


def edit_distance(reference: str, hypothesis: str) -> int:
    """Return the least number of one-character edits that turn `hypothesis` into `reference`."""
    if len(reference) < len(hypothesis):
        reference, hypothesis = hypothesis, reference
    previous = list(range(len(hypothesis) + 1))
    for row, wanted in enumerate(reference, start=1):
        current = [row]
        for column, got in enumerate(hypothesis, start=1):
            substitution = previous[column - 1] + (wanted != got)
            current.append(min(substitution, previous[column] + 1, current[-1] + 1))
        previous = current
    return previous[-1]


def cer(reference: str, hypothesis: str) -> float:
    """Return the character error rate of `hypothesis`, 0.0 for a perfect one; it can pass 1.0.

    An empty reference gives 0.0 for an empty hypothesis and 1.0 for any other.
    """
    if not reference:
        return float(bool(hypothesis))
    return edit_distance(reference, hypothesis) / len(reference)
