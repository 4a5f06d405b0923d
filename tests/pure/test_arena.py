"""The arena's book-keeping: every byte has one owner, and nobody starves."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor import arena
from supervisor.arena import ALIGN_BYTES, FAIR_AFTER_S, Arena

KI = 1024


def test_blocks_are_given_in_the_order_of_asking():
    pixels = Arena(64 * KI)
    for key in (3, 1, 2):
        pixels.request(key, 4 * KI, now=0.0)
    assert [key for key, _ in pixels.grants("fetcher", 0.0)] == [3, 1, 2]


def test_a_small_request_passes_a_large_one_that_does_not_fit_yet():
    pixels = Arena(16 * KI)
    pixels.request(1, 12 * KI, 0.0)
    pixels.grants("fetcher", 0.0)
    pixels.request(2, 8 * KI, 0.0)
    pixels.request(3, 4 * KI, 0.0)
    assert [key for key, _ in pixels.grants("fetcher", 1.0)] == [3]


def test_a_request_that_waited_long_is_not_passed_any_more():
    pixels = Arena(16 * KI)
    pixels.request(1, 12 * KI, 0.0)
    pixels.grants("fetcher", 0.0)
    pixels.request(2, 8 * KI, 0.0)
    pixels.request(3, 4 * KI, 0.0)
    assert pixels.grants("fetcher", FAIR_AFTER_S) == []
    pixels.free(1)
    assert [key for key, _ in pixels.grants("fetcher", FAIR_AFTER_S)] == [2, 3]


def test_a_request_larger_than_the_whole_arena_is_refused_at_once():
    pixels = Arena(16 * KI)
    assert not pixels.fits(17 * KI)
    with pytest.raises(ValueError, match="never fit"):
        pixels.request(1, 17 * KI, 0.0)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 40 * KI), st.booleans()), max_size=80))
def test_every_byte_is_free_or_in_exactly_one_block(orders: list[tuple[int, int, bool]]):
    pixels = Arena(128 * KI)
    for at, (key, length, giving) in enumerate(orders):
        known = pixels.block(key) is not None or pixels.wanted(key)
        if giving or known:
            pixels.free(key)
        else:
            pixels.request(key, length, float(at))
        pixels.grants("fetcher", float(at))
        taken = sorted((b.block.offset, -(-b.block.length // ALIGN_BYTES) * ALIGN_BYTES) for b in pixels.lent)
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(taken))
        assert sum(n for _, n in taken) == pixels.used_bytes
        assert not taken or taken[-1][0] + taken[-1][1] <= 128 * KI
    for key in range(21):
        pixels.free(key)
    assert pixels.used_bytes == 0
    pixels.request(99, 128 * KI, 0.0)
    assert len(pixels.grants("fetcher", 0.0)) == 1


def test_a_reader_of_the_arena_sees_what_is_written_and_cannot_write():
    fd = arena.create(64 * KI)
    reading = arena.read_only(fd)
    try:
        arena.reserve(fd, 64 * KI)
        with arena.view(fd, 64 * KI, writable=True) as ours, arena.view(reading, 64 * KI, writable=False) as theirs:
            ours[5:8] = b"abc"
            assert bytes(theirs[5:8]) == b"abc"
            with pytest.raises(TypeError):
                theirs[0] = 1
        with pytest.raises(PermissionError):
            arena.view(reading, 64 * KI, writable=True)
    finally:
        os.close(fd)
        os.close(reading)
