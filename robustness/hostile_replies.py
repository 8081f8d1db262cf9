"""At least 200 hostile replies for every family of methods: is the server alive, is the liar named?

``python -m robustness.hostile_replies [FAMILY …] [--quick]`` prints a table. One of several clients
is hostile: in every round it answers one message with an attack of
:mod:`robustness.hostile_attacks`, all else is honest. The reply must be refused, its client and no
other must be named, and the run must go on.
"""

from __future__ import annotations

import argparse
import atexit
import gc
import json
import logging
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedul_flwr.config.run_config import resolve
from fedul_flwr.deploy.certificates import make_node_key
from fedul_flwr.engine.in_process import FIRST_NODE_ID, InProcessGrid, run_in_process
from fedul_flwr.federated.grid import GridProxy
from fedul_flwr.federated.messages import phase_of
from fedul_flwr.propagation.phases import COMPARE, SUM
from fedul_flwr.results import plots
from fedul_flwr.secure.identities import OWNERS_FILE, PRIVATE_FILE
from robustness.hostile_attacks import Attack, attacks, copied, forged, of_floats

LIAR, LEAST = 1, 200
SMALL: dict[str, Any] = {
    **{"model": "mlp", "local-epochs": 1, "batch-size": 64, "evaluate-every": 1000},
    **{"on-client-failure": "continue", "connect-timeout": 0.05, "measure-test-error": False},
    **{"validation-fraction": 0.0, "selection": "last"},
}
BASE = {**SMALL, "method": "supervised", "points-per-client": 20, "optimizer": "sgd"}
LABELS = {**SMALL, "labels.total": 30, "points-per-client": 12}
XCLP = {**LABELS, "method": "xclp", "semi.labels-only-rounds": 0, "xclp.num-bits": 64, "xclp.k": 3}
HELDOUT = {"selection": "heldout", "evaluate-every": 1, "fedul.heldout-fraction": 0.2}

LAYERS = ("1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias")
MEANS = (
    *("fedavg", "fedprox", "fedadam", "fedavgm", "fedyogi", "fedadagrad"),
    *("fednova", "fedmedian"),
)


@dataclass(frozen=True)
class Family:
    """Runs that are attacked: their settings, number of clients, and the attacked messages.

    ``steps`` says how many messages of a phase there are in one round, 1 by default; ``harmless``
    has names of attacks that are none here. With ``identities`` clients sign their keys.
    """

    settings: dict[str, Any]
    clients: int = 4
    phases: tuple[str, ...] = ("describe", "setup", "train")
    steps: dict[str, int] = field(default_factory=dict)
    harmless: frozenset[str] = frozenset()
    identities: bool = False


UNCHANGED = frozenset(
    what
    for part in ("sigma", "psi")
    for what in (f"{part}: empty", *(f"{part}/{layer}: missing" for layer in LAYERS))
)
"""In FedMatch's messages an array without changes is left out."""
ANY_ROUNDS = frozenset(f"variate-rounds: {r}" for r in ("[-1.0]", "[]", "[1.0, 1.0, 1.0, 1.0,…"))
"""With SCAFFOLD a new client may have any variates: none of it is used yet."""

SILENT = "rows-unopened: missing"
"""In XCLP a client says whether its rows held a sum in rounds in which it got some."""
TO_ONE = frozenset(f"arrays/to/{client}: a row more" for client in range(5))
"""A wrong message to one client alone: both leave, as nobody can tell who lies."""

FAMILIES: dict[str, Family] = {
    "FedUL": Family(
        {
            **{**SMALL, "points-per-client": 100, **HELDOUT},
            **{"fedul.share-priors": True, "on-client-failure": "continue"},
        },
        phases=("describe", "setup", "train", "evaluate"),
    ),
    **{name: Family({**BASE, "base": name}) for name in MEANS},
    "scaffold": Family({**BASE, "base": "scaffold"}, harmless=ANY_ROUNDS),
    "fedtrimmedavg": Family({**BASE, "base": "fedtrimmedavg"}, clients=6),
    "krum": Family({**BASE, "base": "krum"}, clients=7),
    "multikrum": Family({**BASE, "base": "multikrum"}, clients=8),
    "bulyan": Family({**BASE, "base": "bulyan"}, clients=9),
    "FedMatch": Family({**LABELS, "method": "fedmatch", "learning-rate": 0.01}, harmless=UNCHANGED),
    "XCLP, plaintext": Family(
        {**XCLP, "xclp.secure": "plaintext"},
        phases=("describe", "setup", COMPARE, SUM, "train"),
        harmless=frozenset({SILENT}),
    ),
    "XCLP, secure": Family(
        {**XCLP, "xclp.secure": "rlwe", "xclp.codes-seed": "run", "xclp.min-labeled-clients": 1},
        clients=5,
        phases=("describe", "setup", COMPARE, SUM, "train"),
        steps={COMPARE: 5},
        harmless=TO_ONE | {SILENT},
    ),
}
FAMILIES["XCLP, identities"] = replace(
    FAMILIES["XCLP, secure"], phases=(COMPARE, SUM), identities=True
)


@cache
def _folders(clients: int) -> str:
    """A folder of each client with its identity, the same in all runs of this process."""
    place = tempfile.mkdtemp(prefix="fedul-identities-")
    atexit.register(shutil.rmtree, place)
    keys = [make_node_key(str(client)) for client in range(clients)]
    everybody = b"".join(b"%d %s" % (client, public) for client, (_, public) in enumerate(keys))
    for client, (private, _) in enumerate(keys):
        folder = Path(place) / str(client)
        folder.mkdir()
        (folder / PRIVATE_FILE).write_bytes(private)
        (folder / OWNERS_FILE).write_bytes(everybody)
    return place


@dataclass
class Result:
    """What became of one attack; ``wrong`` are others that were named, and ``clients`` counts those
    in the round's model."""

    attack: Attack
    alive: bool = False
    named: bool = False
    accepted: bool = True
    wrong: tuple[str, ...] = ()
    clients: int = 0

    @property
    def sound(self) -> bool:
        """Whether the server went on without the reply, and named its client alone."""
        return self.alive and self.named and not self.accepted and not self.wrong

    @property
    def in_words(self) -> str:
        """What was not met."""
        flags = {"dead": not self.alive, "accepted": self.accepted, "unnamed": not self.named}
        return ", ".join([*(word for word, holds in flags.items() if holds), *self.wrong])


class HostileGrid(GridProxy):
    """A grid on which the liar's replies are changed: in round ``r`` by the attack ``plan[r - 1]``.

    Attributes
    ----------
    honest : content of the liar's first honest reply by phase and step.
    round : counted by training messages.
    """

    def __init__(self, grid: Grid, plan: Sequence[tuple[Attack, int]]) -> None:
        super().__init__(grid)
        self._plan, self._before = plan, None
        self.round, self._step = 1, 0
        self._phase = ""
        self.honest: dict[tuple[str, int], RecordDict] = {}

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        sent = list(messages)
        if not sent:
            return []
        phase = phase_of(sent[0]) or sent[0].metadata.message_type
        if self._phase in ("train", "evaluate") and phase != "evaluate":
            self.round += 1
        self._step = self._step + 1 if phase == self._phase != "train" else 0
        self._phase = phase
        replies = []
        for reply in super().send_and_receive(sent, timeout=timeout):
            if reply.metadata.src_node_id != FIRST_NODE_ID + LIAR:
                replies.append(reply)
            elif (found := self._hostile(phase, reply)) is not None:
                replies.append(found)
        return replies

    def _hostile(self, phase: str, reply: Message) -> Message | None:
        before, self._before = self._before, reply
        if not reply.has_error():
            self.honest.setdefault((phase, self._step), copied(reply.content))
        attack, step = self._plan[self.round - 1] if self.round <= len(self._plan) else (None, 0)
        if attack is None or attack.phase != phase or step != self._step:
            return reply
        if attack.message is not None:
            return attack.message(reply, before or reply)
        assert attack.change is not None
        reply.content = attack.change(copied(reply.content))
        return reply


_NODE = re.compile(r"(Node|Client) \d+(?= takes no part| does not say who| cannot take part)")
"""Of a warning: the node or client that it is about."""


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _quiet() -> Iterator[_Warnings]:
    """Flower's log is kept, nothing is printed and no picture is drawn."""
    flower, heard = logging.getLogger("flwr"), _Warnings()
    handlers, flower.handlers = flower.handlers, [heard]
    draw, plots.draw_plots = plots.draw_plots, lambda *_: []
    # Flower's Bulyan collects garbage for every client, which takes longer than all else here.
    collect, gc.collect = gc.collect, lambda *_: 0
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            yield heard
    finally:
        flower.handlers, plots.draw_plots, gc.collect = handlers, draw, collect


def _run(
    family: Family, plan: Sequence[tuple[Attack, int]], rounds: int
) -> tuple[HostileGrid, list[dict[str, Any]], list[str], bool]:
    """A run under attack: its grid, metrics lines, warnings, and whether it came to its end."""
    grids: list[HostileGrid] = []

    def wrap(grid: Grid) -> Grid:
        if family.identities:
            assert isinstance(grid, InProcessGrid)
            for context in grid.contexts.values():
                number = context.node_config["partition-id"]
                context.node_config |= {"identity": f"{_folders(family.clients)}/{number}"}
        grids.append(HostileGrid(grid, plan))
        return grids[-1]

    with tempfile.TemporaryDirectory(prefix="fedul-hostile-") as place, _quiet() as heard:
        output = Path(place) / "run"
        flat = {**family.settings, "num-rounds": rounds, "output": str(output)}
        finished = True
        try:
            run_in_process(resolve(flat, Path(place)), family.clients, wrap_grid=wrap)
        except Exception as error:
            finished = False
            heard.lines.append(f"{type(error).__name__}: {error}")
        log = output / "metrics.jsonl"
        text = log.read_text() if log.exists() else ""
    return grids[-1], [json.loads(line) for line in text.splitlines()], heard.lines, finished


def planned(family: Family, *, few: bool = False) -> list[tuple[Attack, int]]:
    """All attacks on a family, each with the number of its message within the phase."""
    grid, _, said, finished = _run(family, [], 2)
    assert finished, said
    assert {phase for phase, _ in grid.honest} >= {*family.phases}
    plan: list[tuple[Attack, int]] = []
    for (phase, step), content in grid.honest.items():
        if phase in family.phases and step < family.steps.get(phase, 1):
            plan += [(attack, step) for attack in attacks(phase, content, few=few)]
            if COMPARE in family.steps:
                plan += [(attack, step) for attack in forged(phase, step, content)]
            for name, record in content.array_records.items():
                weights = [key for key, array in record.items() if array.dtype == "float32"]
                for array in weights[:1] if phase == "train" else ():
                    found = of_floats(name, array)
                    plan += [(Attack(phase, what, change), step) for what, change in found]
    return [(attack, step) for attack, step in plan if attack.name not in family.harmless]


def forgeries(family: Family) -> list[tuple[Attack, int]]:
    """Attacks on a family's secure protocol alone, which have the right form."""
    grid, _, said, finished = _run(family, [], 2)
    assert finished, said
    return [
        (attack, step)
        for (phase, step), content in grid.honest.items()
        if phase in (COMPARE, SUM) and step < family.steps.get(phase, 1)
        for attack in forged(phase, step, content)
    ]


def attacked(family: Family, plan: Sequence[tuple[Attack, int]]) -> list[Result]:
    """Run all attacks: those on a node that introduces itself one by one, others in one run."""
    results = []
    alone = [found for found in plan if found[0].phase in ("describe", "setup")]
    for found in alone:
        _, lines, said, finished = _run(family, [found], 1)
        results.append(_judged(found[0], lines[:1], said, alive=finished))
    left = [found for found in plan if found not in alone]
    while left:
        _, lines, said, finished = _run(family, left, len(left))
        done = len(lines) if not finished else len(left)
        for (attack, _), line in zip(left, lines, strict=False):
            told = [text for text in said if f"ound {line['round']}:" in text]
            results.append(_judged(attack, [line], told, alive=True))
        if not finished:
            results.append(_judged(left[done][0], [], said[-1:], alive=False))
            done += 1
        left = left[done:]
    return results


def _judged(
    attack: Attack, lines: Sequence[dict[str, Any]], said: Sequence[str], *, alive: bool
) -> Result:
    """Whether a round's line and warnings name the liar, and nobody else."""
    named = [name for line in lines for name in line.get("failed", ())]
    found = (_NODE.match(text) for text in said)
    named += [match[0] for match in found if match]
    mine = [name for name in named if name in (f"Client {LIAR}", f"Node {FIRST_NODE_ID + LIAR}")]
    wrong = tuple(name for name in named if name not in mine and name.startswith("Client"))
    accepted = alive and not named
    clients = min((int(line.get("clients", 0)) for line in lines), default=0)
    return Result(attack, alive, bool(mine), accepted=accepted, wrong=wrong, clients=clients)


def table(found: dict[str, list[Result]]) -> str:
    """The results as a table in Markdown."""
    head = "| family | replies | server alive | offender named | others named | wrongly accepted |"
    rows = [head, "|---|---:|---:|---:|---:|---:|"]
    for name, results in found.items():
        counts = [
            sum(result.alive for result in results),
            sum(result.named for result in results),
            sum(bool(result.wrong) for result in results),
            sum(result.accepted for result in results),
        ]
        rows.append(f"| {name} | {len(results)} | " + " | ".join(map(str, counts)) + " |")
    return "\n".join(rows)


def main() -> int:
    """Print the table, and every attack that was not met; 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m robustness.hostile_replies")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--quick", action="store_true", help=f"about {LEAST} replies each")
    chosen = parser.parse_args()
    found: dict[str, list[Result]] = {}
    for name in chosen.families or FAMILIES:
        plan = planned(FAMILIES[name], few=chosen.quick)
        if chosen.quick:
            plan = plan[:: max(1, len(plan) // LEAST)]
        found[name] = attacked(FAMILIES[name], plan)
        for result in found[name]:
            if not result.sound:
                attack = result.attack
                print(f"{name}, {attack.phase}, {attack.name}: {result.in_words}", flush=True)
        print(table({name: found[name]}).splitlines()[-1], flush=True)
    print(table(found))
    return int(any(not result.sound for results in found.values() for result in results))


if __name__ == "__main__":
    raise SystemExit(main())
