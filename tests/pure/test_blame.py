"""Who pays: each row of the table of liveness and blame that needs no process."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from batchpod.gpus.blame import JUDGE_AFTER, Decision, Docket, InFlight, after_hang, stalled

LIMIT_S = 600.0


def page(number: int, age_s: float, *, inside: bool = True) -> InFlight:
    return InFlight(number, age_s, inside, "TextRecognition", "trocr")


def test_a_page_that_moves_is_not_stalled():
    assert not stalled([page(1, 599.0)], LIMIT_S)
    assert stalled([page(1, 600.0)], LIMIT_S)
    assert not stalled([], LIMIT_S)


def test_a_page_that_waits_for_one_that_moves_is_not_stalled():
    assert not stalled([page(1, 5.0), page(2, 900.0, inside=False)], LIMIT_S)


def test_pages_that_all_wait_for_nothing_are_stalled():
    assert stalled([page(1, 700.0, inside=False), page(2, 601.0, inside=False)], LIMIT_S)


def test_a_hang_alone_is_the_pages_own():
    assert after_hang([page(7, 600.0)], LIMIT_S) == Decision(guilty=7)


def test_a_hang_in_company_that_only_waits_is_the_page_inside():
    seen = [page(1, 610.0), page(2, 605.0, inside=False), page(3, 20.0, inside=False)]
    assert after_hang(seen, LIMIT_S) == Decision(guilty=1, again=(2, 3))


def test_a_hang_beside_a_page_that_still_moves_is_the_one_that_stands_still():
    assert after_hang([page(1, 3.0), page(2, 600.0)], LIMIT_S) == Decision(guilty=2, again=(1,))


def test_a_hang_that_stops_several_pages_inside_is_nobodys_yet():
    decision = after_hang([page(1, 600.0), page(2, 590.0), page(3, 600.0, inside=False)], LIMIT_S)
    assert decision == Decision(alone=(1, 2), again=(3,))


def test_a_death_with_one_page_gives_it_one_more_try_alone():
    docket = Docket()
    assert docket.after_death([5]) == Decision(alone=(5,))
    assert docket.after_death([5]) == Decision(guilty=5)


def test_a_death_in_company_charges_nobody_and_tries_each_alone():
    docket = Docket()
    assert docket.after_death([5, 6]) == Decision(alone=(5, 6))
    assert docket.after_death([5]) == Decision(alone=(5,))
    assert docket.after_death([5]) == Decision(guilty=5)
    assert docket.after_death([6]) == Decision(alone=(6,))


def test_deaths_are_counted_over_all_actors_that_a_page_meets():
    one, other = Docket(), Docket()
    other.share(one)
    one.after_death([5])
    assert other.after_death([5]) == Decision(guilty=5)


def test_out_of_memory_gives_a_page_one_more_try_alone():
    docket = Docket()
    assert docket.after_out_of_memory(3) == Decision(alone=(3,))
    assert docket.after_out_of_memory(3) == Decision(guilty=3)


def test_three_blamed_in_a_row_call_for_the_smoke_test_and_a_page_that_comes_out_ends_the_row():
    docket = Docket()
    for number in range(JUDGE_AFTER):
        assert not docket.judge
        docket.blame(number)
    assert docket.judge
    docket.acquitted()
    assert not docket.judge
    docket.blame(1)
    docket.blame(2)
    docket.came_out()
    docket.blame(3)
    assert not docket.judge


def test_device_errors_in_three_incarnations_in_a_row_call_for_the_smoke_test():
    docket = Docket()
    for _ in range(JUDGE_AFTER):
        assert not docket.judge
        docket.device_error()
    assert docket.judge


@given(st.integers(0, 2**32))
def test_every_page_in_flight_gets_exactly_one_decision(seed: int):
    chance = random.Random(seed)
    seen = [page(n, chance.uniform(0, 1200), inside=chance.random() < 0.6) for n in range(chance.randint(1, 5))]
    if stalled(seen, LIMIT_S):
        decision = after_hang(seen, LIMIT_S)
        everyone = [*decision.alone, *decision.again, *([] if decision.guilty is None else [decision.guilty])]
        assert sorted(everyone) == [p.page for p in seen]
        assert decision.guilty is None or not decision.alone
