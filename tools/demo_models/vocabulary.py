"""The words the demo's pages are made of, and the alphabet that follows from them.

Owns the text only: what it looks like on paper is `pages.py`. The texts are lists of words in the manner of
old parish and court records, without sense. The alphabet is every character that can come out of
`next_words`.
"""

import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORDS = (HERE / "words.txt").read_text(encoding="utf-8").split()
NAMES = (HERE / "names.txt").read_text(encoding="utf-8").split()

FIRMS = ("Co", "Söner", "Son", "Bror", "Arvingar", "Döttrar")

PUNCTUATION = ",.-&"
ALPHABET = sorted(set("".join((*WORDS, *NAMES, *FIRMS))) | set("0123456789 ") | set(PUNCTUATION))
MAX_CHARACTERS = 44
"""Longest line of text; the recogniser has 64 columns and 60 tokens for it."""


def next_words(rng: random.Random) -> str:
    """Draw the next piece: a word, a number, a span of years, a pair joined by `&` or a double name."""
    draw = rng.random()
    if draw < 0.22:
        return str(rng.randint(1, 1999))
    if draw < 0.26:
        return f"{rng.randint(1600, 1899)}-{rng.randint(1600, 1899)}"
    if draw < 0.32:
        return f"{rng.choice(NAMES)} & {rng.choice(FIRMS if rng.random() < 0.5 else NAMES)}"
    if draw < 0.34:
        return f"{rng.choice(NAMES)}-{rng.choice(NAMES)}"
    word = rng.choice(NAMES) if draw < 0.54 else rng.choice(WORDS)
    if draw > 0.93:
        return word + rng.choice(",.")
    return word
