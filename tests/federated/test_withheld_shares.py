"""A server that sums a round without one owner, while all sign that it is in the sum."""

from pathlib import Path
from typing import Any

import pytest

from fedul_flwr.secure import sum_client
from fedul_flwr.secure.sum_server import SumServer
from fedul_flwr.secure.words import Tail
from tests.federated.test_lying_server import FULL_BATCHES, VICTIM, ask_again, run
from tests.secure.test_withheld_shares import without
from tests.support.lying_server import Owners, cosine, opened_sums
from tests.support.settings import Settings


def withhold(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From its second sum on the server withholds the victim's shares, and sums without it."""
    honest = SumServer.shares_for, SumServer._opened_by, SumServer.open_sum
    begun: list[int] = []

    def lies(server: SumServer) -> bool:
        if server.number not in begun:
            begun.append(server.number)
        return begun.index(server.number) > 0

    def shares_for(self: SumServer, client: int) -> Any:
        message = honest[0](self, client)
        return without(message, [VICTIM]) if lies(self) and client != VICTIM else message

    def opened_by(self: SumServer, client: int) -> Any:
        alive, gone = honest[1](self, client)
        hidden = lies(self) and client != VICTIM
        return [peer for peer in alive if not hidden or peer != VICTIM], gone

    def open_sum(self: SumServer, answers: Any, tail: Tail) -> Any:
        if lies(self):
            for stored in (self._masked, self._answers):
                del stored[VICTIM]
            answers = {client: answer for client, answer in answers.items() if client != VICTIM}
        return honest[2](self, answers, tail)

    for name, lie in (
        ("shares_for", shares_for), ("_opened_by", opened_by), ("open_sum", open_sum)
    ):  # fmt: skip
        monkeypatch.setattr(SumServer, name, lie)
    return begun


@pytest.mark.parametrize("checked", [True, False])
def test_given_shares_of_one_owner_that_are_withheld_then_the_others_do_not_sign(
    checked: bool, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: two sums of one model, both over all as all have signed, tell an update."""
    if not checked:
        monkeypatch.setattr(sum_client, "_refuse_withheld", lambda *_: None)
    owners, sums = Owners(tmp_path, 5, **{"fixed-clients": True}), opened_sums(monkeypatch)
    ask_again(monkeypatch, as_round=None, without=None)
    numbers = withhold(monkeypatch)
    run(settings, owners, num_rounds=2, **FULL_BATCHES)
    assert len(numbers) == 2
    assert len(sums) == (1 if checked else 2)
    if not checked:
        (_, everybody), (_, others) = sums
        assert cosine(everybody - others, owners.updates[1, VICTIM][0]) > 0.9999
