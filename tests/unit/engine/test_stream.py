"""The mailbox between engine and event loop: nothing is lost, what nobody had time for comes as one."""

import asyncio

import pytest

from tokenpool_engine.request import Finish, Picked, Request, Sampling
from tokenpool_engine.stream import Mailbox, Stream, Update, join

ONE, TWO = Update((1,), picked=(Picked(1, -0.5),)), Update((2, 3), picked=(Picked(2, -1.0), Picked(3, -2.0)))
END = Update((4,), Finish.STOP)


@pytest.mark.parametrize(
    ("updates", "wanted"),
    [
        ([ONE], ONE),
        ([ONE, TWO], Update((1, 2, 3), picked=(Picked(1, -0.5), Picked(2, -1.0), Picked(3, -2.0)))),
        ([ONE, END], Update((1, 4), Finish.STOP, picked=ONE.picked)),
        ([ONE, Update(finish=Finish.ERROR, error="why")], Update((1,), Finish.ERROR, "why", ONE.picked)),
        ([END, ONE], END),
        ([END, Update(finish=Finish.CANCELLED)], END),
    ],
)
def test_several_updates_become_one_up_to_the_end(updates: list[Update], wanted: Update) -> None:
    assert join(updates) == wanted
    box = Mailbox()
    for update in updates:
        box.put_nowait(update)
    assert box.take() == wanted
    assert box.take() is None


def test_a_listener_hears_of_every_update_and_of_what_came_before_it() -> None:
    box, heard = Mailbox(), []
    box.put_nowait(ONE)
    box.listen(lambda: heard.append(box.take()))
    box.put_nowait(TWO)
    box.put_nowait(END)
    assert heard == [ONE, TWO, END]


async def test_who_waits_gets_what_comes_and_what_is_there() -> None:
    box = Mailbox()
    waiting = asyncio.create_task(box.get())
    await asyncio.sleep(0)
    assert not waiting.done()
    box.put_nowait(ONE)
    assert await waiting == ONE
    box.put_nowait(TWO)
    box.put_nowait(END)
    assert await box.get() == Update((2, 3, 4), Finish.STOP, picked=TWO.picked)


def test_news_are_what_was_not_handed_out() -> None:
    request = Request("r", (1,), 9, Sampling(0.0, logprobs=0), frozenset({0}), output=[5])
    stream = Stream(request, given=len(request.output))
    assert stream.news() == Update()
    request.append(Picked(6, -0.1))
    request.append(Picked(7, -0.2))
    assert stream.news() == Update((6, 7), picked=(Picked(6, -0.1), Picked(7, -0.2)))
    request.append(Picked(0))
    assert stream.news() == Update(finish=Finish.STOP)
