"""The page ledger: every page in exactly one state, and only through the table."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchpod.flow.ledger import FINISHED, TRANSITIONS, Ledger, LedgerError, State


def test_pages_of_a_state_come_in_the_order_in_which_they_entered_it():
    ledger = Ledger(5)
    for number in (4, 2, 5):
        ledger.move(number, State.FETCHING)
    assert ledger.numbers(State.FETCHING) == [4, 2, 5]
    ledger.to_front(5)
    assert ledger.first(State.FETCHING) == 5
    assert ledger.numbers(State.WAITING) == [1, 3]


def test_a_transition_that_the_table_does_not_have_names_the_page_and_its_story():
    ledger = Ledger(2)
    ledger.move(1, State.FETCHING, "asked for", "fetcher")
    with pytest.raises(LedgerError, match=r"page 0001 cannot go from fetching to ok .*asked for"):
        ledger.move(1, State.OK)
    assert ledger[1].state is State.FETCHING


def test_a_finished_page_is_never_processed_again():
    assert not TRANSITIONS[State.OK] | TRANSITIONS[State.SKIPPED]
    assert TRANSITIONS[State.FAILED] == {State.DEFERRED}


def test_every_state_can_reach_an_outcome():
    reached = set(FINISHED)
    while True:
        more = {s for s, to in TRANSITIONS.items() if to & reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(State)


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_whatever_happens_each_page_is_in_exactly_one_place(seed: int, count: int):
    chance, ledger = random.Random(seed), Ledger(count)
    for _ in range(100):
        number = chance.randint(1, count)
        allowed = sorted(TRANSITIONS[ledger[number].state])
        if allowed:
            ledger.move(number, chance.choice(allowed), "chance", "test")
        everywhere = [n for state in State for n in ledger.numbers(state)]
        assert sorted(everywhere) == list(range(1, count + 1))
        assert all(ledger[n].state is state for state in State for n in ledger.numbers(state))
    assert ledger.unfinished == count - ledger.count(*FINISHED)


def test_the_reason_of_an_outcome_is_kept_and_forgotten_when_the_page_is_tried_again():
    ledger = Ledger(1)
    ledger.move(1, State.DEFERRED, "the server said 503")
    assert ledger[1].reason == "the server said 503"
    ledger.move(1, State.WAITING, "asked for again")
    assert ledger[1].reason == ""
    assert [t.why for t in ledger[1].story] == ["the server said 503", "asked for again"]
