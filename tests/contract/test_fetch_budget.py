"""The byte budget and the pacing of requests, on a real event loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.fetcher.budget import FIRST_GUESS_BYTES, Budget
from actors.fetcher.errors import Crowded
from actors.fetcher.pacing import Pacing


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def admitted(budget: Budget, *pages: int) -> dict[int, asyncio.Task[None]]:
    return {page: asyncio.ensure_future(budget.admit(page, None)) for page in pages}


async def let_in(tasks: dict[int, asyncio.Task[None]]) -> list[int]:
    await settle()
    return [page for page, task in tasks.items() if task.done()]


async def end(tasks: dict[int, asyncio.Task[None]]) -> None:
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)


def test_pages_are_let_in_in_page_order_as_far_as_the_bytes_go() -> None:
    async def go() -> None:
        budget = Budget(2 * FIRST_GUESS_BYTES)
        tasks = admitted(budget, 3, 1, 2)
        assert sorted(await let_in(tasks)) == [1, 3]
        budget.release(3)
        assert sorted(await let_in(tasks)) == [1, 2, 3]
        assert budget.used_bytes == 2 * FIRST_GUESS_BYTES
        await end(tasks)

    asyncio.run(go())


def test_one_page_is_always_let_in_however_small_the_budget() -> None:
    async def go() -> None:
        budget = Budget(10)
        tasks = admitted(budget, 1, 2)
        assert await let_in(tasks) == [1]
        budget.arrived(1, 5000)
        budget.hold(1, 5000)
        assert await let_in(tasks) == [1]
        budget.release(1)
        assert await let_in(tasks) == [1, 2]
        await end(tasks)

    asyncio.run(go())


def test_a_body_larger_than_guessed_gives_way_to_earlier_ones() -> None:
    async def go() -> None:
        budget = Budget(2 * FIRST_GUESS_BYTES)
        await budget.admit(1, None)
        await budget.admit(2, None)
        with pytest.raises(Crowded) as crowded:
            budget.arrived(2, FIRST_GUESS_BYTES + 1)
        assert crowded.value.size_bytes == FIRST_GUESS_BYTES + 1
        budget.arrived(1, 2 * FIRST_GUESS_BYTES + 1)
        assert budget.used_bytes == 2 * FIRST_GUESS_BYTES + 1

    asyncio.run(go())


def test_a_page_that_is_given_up_while_it_waits_takes_no_room() -> None:
    async def go() -> None:
        budget = Budget(10)
        tasks = admitted(budget, 1, 2, 3)
        await settle()
        tasks[2].cancel()
        await settle()
        budget.release(1)
        assert await let_in({3: tasks[3]}) == [3]
        budget.release(3)
        assert budget.used_bytes == 0
        await end(tasks)

    asyncio.run(go())


def test_never_more_requests_at_once_than_allowed_and_in_page_order() -> None:
    async def go() -> None:
        pacing = Pacing(3)
        order: list[int] = []
        now, most = 0, 0

        async def ask(page: int) -> None:
            nonlocal now, most
            async with pacing.turn(f"host{page % 2}", page) as turn:
                order.append(page)
                now += 1
                most = max(most, now)
                await asyncio.sleep(0.001)
                now -= 1
                pacing.good(turn)

        await asyncio.gather(*(ask(page) for page in (9, 8, 7, 1, 2, 3, 4, 5, 6)))
        assert most == 3
        assert order == [9, 8, 7, 1, 2, 3, 4, 5, 6]

    asyncio.run(go())


def test_a_slow_host_holds_back_no_other_host() -> None:
    async def go() -> list[str]:
        pacing = Pacing(2)
        asked: list[str] = []

        async def ask(host: str, page: int) -> None:
            async with pacing.turn(host, page):
                asked.append(host)

        async with pacing.turn("slow", 0) as turn:
            pacing.complained(turn, 429, 30.0)
        held: Any = asyncio.ensure_future(ask("slow", 1))
        await asyncio.gather(*(ask("quick", page) for page in range(2, 30)))
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        await asyncio.wait_for(ask("quick", 1), 5)
        return asked

    assert asyncio.run(go()) == ["quick"] * 29


def test_a_host_that_complained_is_asked_more_slowly_and_then_faster_again() -> None:
    async def go() -> tuple[float, float, float]:
        pacing = Pacing(8)
        async with pacing.turn("h", 1) as turn:
            pacing.complained(turn, 429, 0.0)
            host = turn.host
        slow = host.spacing_s
        for _ in range(200):
            later = asyncio.get_running_loop().time() + 60
            host.sped_up(later, later, 8)
        return slow, host.spacing_s, host.limit

    slow, quick, limit = asyncio.run(go())
    assert slow > 0.1
    assert quick == 0.0
    assert limit == 8


def test_a_host_that_answers_nothing_but_503_is_down_and_not_asked_ever_more_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> tuple[float, float]:
        pacing = Pacing(8)
        for page in range(20):
            async with pacing.turn("h", page) as turn:
                pacing.complained(turn, 503, 0.0)
        return turn.host.spacing_s, turn.host.limit

    caplog.set_level("INFO")
    assert asyncio.run(go()) == (0.0, 8.0)
    assert len(caplog.records) == 1
