"""Checks that any method must pass, of somebody's own too: :func:`check_method`."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedul_flwr.config.methods import Method, find_method, reference_to
from fedul_flwr.config.run_config import RunConfig, resolve
from fedul_flwr.data.run_files.records import read_metrics
from fedul_flwr.data.run_files.run import Run
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid, run_in_process
from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.messages import DIAGNOSTICS, METRICS, WEIGHT
from fedul_flwr.federated.payload import TRAIN, in_record, reports_of

Change = Callable[[int, list[Message]], None]
"""``(number of a training round from 1, replies)``: changes replies in place."""

CLIENTS, ROUNDS = 4, 3
_BY_DATA: Mapping[str, Mapping[str, Any]] = {
    "unlabeled-sets": {"fedul.num-sets": 10},
    "labels": {},
    "partly-labeled": {"labels.total": 100},
    "fully-labeled": {},
}


class _Cut(BaseException):
    """Stands for whatever ends a program."""


class _Watched(GridProxy):
    """A grid whose replies to training messages are shown, and may be changed."""

    def __init__(self, grid: Grid, change: Change) -> None:
        super().__init__(grid)
        self._change, self._round = change, 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Replies, after ``change``."""
        asked = list(messages)
        replies = list(super().send_and_receive(asked, timeout=timeout))
        if asked and asked[0].metadata.message_type == TRAIN:
            self._round += 1
            self._change(self._round, [reply for reply in replies if reply.has_content()])
        return replies


def check_method(method: Method | str, **settings: Any) -> list[str]:
    """Run a method in small runs on the handwritten digits, and hold it to what all must do.

    Parameters
    ----------
    method : a method, or its name (``"my_methods:METHOD"``).
    settings : of all runs, such as ``model="cnn6"`` or ``method_options="threshold=0.5"``.

    Returns
    -------
    Names of the checks that it passed; those that do not apply to it are left out.

    Raises
    ------
    AssertionError
        With one sentence on what a check has shown.
    UserError
        If a run ends with an error.

    Examples
    --------
    >>> check_method("given-labels", rounds=1)  # doctest: +SKIP
    ['declared', 'resume', 'generators', 'forgetful client', 'hostile replies', ...]
    """
    name = method if isinstance(method, str) else reference_to(method)
    checks = _Checks(name, settings)
    passed = []
    for name, check in checks.all():
        check()
        passed.append(name)
    return passed


class _Broken:
    """Makes one number of each of the first replies NaN in the last round, where they have it.

    Parameters
    ----------
    names : with their records, one for each of the replies.
    """

    def __init__(self, names: Sequence[tuple[str, str]], last: int) -> None:
        self._names, self._last = names, last
        self.by_client: dict[int, str] = {}

    def __call__(self, number: int, replies: list[Message]) -> None:
        if number != self._last:
            return
        for reply, (name, record) in zip(replies, self._names, strict=False):
            table = reply.content.metric_records[record]
            if name in table:
                value = table[name]
                table[name] = [np.nan] * len(value) if isinstance(value, list) else np.nan
                self.by_client[reply.metadata.src_node_id - FIRST_NODE_ID] = name


class _Checks:
    def __init__(self, name: str, settings: Mapping[str, Any]) -> None:
        self.method = find_method(name)
        options = {key.replace("_", "-"): value for key, value in settings.items()}
        self.rounds = int(options.pop("rounds", ROUNDS))
        self.settings: dict[str, Any] = {
            "method": name,
            "dataset": "digits",
            "model": "mlp",
            "num-rounds": self.rounds,
            "local-epochs": 1,
            "points-per-client": 60,
            "precision": "float32",
            "selection": "last",
            **_BY_DATA[self.method.data],
            **options,
        }

    def all(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The checks that apply to the method, by name."""
        if not (self.method.trains and self.method.asks_clients and self.method.updates):
            return
        yield "declared", self.declares_what_it_sends
        yield "resume", self.resumes_bit_for_bit
        yield "generators", self.draws_from_seeded_generators
        yield "forgetful client", self.goes_on_with_a_client_that_forgets
        yield "hostile replies", self.refuses_replies_that_are_not_declared
        if self.method.can_sum:
            yield "secure sum", self.sums_in_secret_what_it_sums_in_the_open

    # Runs

    def run(self, change: Change = lambda *_: None, **settings: Any) -> Path:
        """A run in a new folder."""
        flat = {**self.settings, **{key.replace("_", "-"): v for key, v in settings.items()}}
        flat.setdefault("output", tempfile.mkdtemp(prefix="check-method-"))
        config = resolve(flat, Path.cwd())
        run_in_process(config, CLIENTS, wrap_grid=lambda grid: _Watched(grid, change))
        return Path(config.output)

    @cached_property
    def whole(self) -> tuple[Path, set[str]]:
        """A run to its end, and the names of all that its clients have sent in training."""
        seen: set[str] = set()

        def watch(_: int, replies: list[Message]) -> None:
            for reply in replies:
                tables = reply.content.metric_records.values()
                seen.update(*(table.keys() for table in tables), reply.content.array_records)

        return self._run_of_state(1, watch), seen

    def _run_of_state(self, seed: int, change: Change = lambda *_: None) -> Path:
        """A run before which global generators are in a state, which must be no matter to it."""
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  what a method must not depend on
        return self.run(change)

    def resolved(self) -> RunConfig:
        """Settings of its runs."""
        return resolve({**self.settings, "output": tempfile.gettempdir()}, Path.cwd())

    # Checks

    def declares_what_it_sends(self) -> None:
        """Each declared number is sent in some round, or is optional."""
        _, seen = self.whole
        silent = sorted(
            name
            for name, part in reports_of(self.resolved()).items()
            if not part.optional and name not in seen
        )
        assert not silent, f"It declares {silent[0]!r} in its reports, and never sends it."

    def resumes_bit_for_bit(self) -> None:
        """A run that is cut off in its last round ends as one that is not."""

        def cut(number: int, _: list[Message]) -> None:
            if number == self.rounds:
                raise _Cut

        whole, part = self.whole[0], tempfile.mkdtemp(prefix="check-method-")
        try:
            self.run(cut, output=part)
        except _Cut:
            run_in_process(resolve({"resume": part}, Path.cwd()), CLIENTS)
        for name in ("the model", "its state"):
            one, other = (self._arrays(Path(run), name) for run in (whole, part))
            assert one.keys() == other.keys(), (
                f"After a resume {name} has other arrays: declare all that a later round needs in "
                "Strategy.state, and keep a client's in self.state."
            )
            odd = [key for key in one if one[key].tobytes() != other[key].tobytes()]
            assert not odd, f"After a resume {odd[0]!r} of {name} differs from that of a whole run."

    def _arrays(self, run: Path, name: str) -> dict[str, Any]:
        directory = Run(path=run)
        if name == "the model":
            return directory.load_model("last.safetensors")[0]
        return directory.load_state(self.rounds)

    def draws_from_seeded_generators(self) -> None:
        """Two runs of one seed are equal, whatever state global generators are in."""
        one, other = (
            self._arrays(run, "the model") for run in (self.whole[0], self._run_of_state(2))
        )
        odd = [key for key in one if one[key].tobytes() != other[key].tobytes()]
        assert not odd, (
            f"Two runs of one seed differ in {odd[0]!r}: draw random numbers from `stream`, from "
            "the generators that you are given, or from torch's in a loss."
        )

    def goes_on_with_a_client_that_forgets(self) -> None:
        """A restarted device has lost its state."""
        grids: list[InProcessGrid] = []

        def forget(number: int, _: list[Message]) -> None:
            if number == 1 and grids:
                context = next(iter(grids[0].contexts.values()))
                context.state = RecordDict({"setup": context.state["setup"]})

        config = resolve(
            {**self.settings, "output": tempfile.mkdtemp(prefix="check-method-")}, Path.cwd()
        )

        def wrap(grid: Grid) -> Grid:
            if isinstance(grid, InProcessGrid):
                grids.append(grid)
            return _Watched(grid, forget)

        run_in_process(config, CLIENTS, wrap_grid=wrap)
        self._require_finite(Path(config.output), "a client that has lost its state")

    def refuses_replies_that_are_not_declared(self) -> None:
        """A client whose numbers are not as declared fails, and the others go on."""
        parts = reports_of(self.resolved())
        records = {name: METRICS for name in in_record(parts, METRICS) if name != WEIGHT}
        records |= dict.fromkeys(in_record(parts, DIAGNOSTICS), DIAGNOSTICS)
        numbers, at_once = list(records.items()), CLIENTS - 1  # one client goes on
        for start in range(0, len(numbers), at_once):
            names = numbers[start : start + at_once]
            broken = _Broken(names, self.rounds)
            run = self.run(broken, on_client_failure="continue")
            failed = read_metrics(run / "metrics.jsonl")[-1].get("failed", [])
            accepted = [
                name
                for client, name in broken.by_client.items()
                if f"Client {client}" not in failed
            ]
            assert not accepted, f"A client whose {accepted[0]!r} is no number is not refused."
            assert len(failed) == len(broken.by_client), f"Others fail, too: {', '.join(failed)}."
            self._require_finite(run, f"clients whose {', '.join(dict(names))} are no numbers")

    def sums_in_secret_what_it_sums_in_the_open(self) -> None:
        """In a secure sum the first round has the same model, but for rounding."""
        one, other = (self._arrays_of_one_round(kind) for kind in ("off", "on"))
        for name, array in one.items():
            assert np.allclose(array, other[name], atol=1e-3), (
                f"With secure-sum = 'on' {name!r} is another after round 1: what the server needs "
                "of single clients is no sum (can_sum=False)."
            )

    def _arrays_of_one_round(self, secure_sum: str) -> dict[str, Any]:
        run = self.run(num_rounds=1, secure_sum=secure_sum)
        return Run(path=run).load_model("last.safetensors")[0]

    def _require_finite(self, run: Path, after: str) -> None:
        arrays = self._arrays(run, "the model").values()
        assert all(np.isfinite(array).all() for array in arrays), (
            f"After {after} the model is not finite."
        )
