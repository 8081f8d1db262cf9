"""The server's side of XCLP's phases with a group of clients (Algorithm 1)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from logging import INFO, WARNING
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.data.types import Content
from fedul_flwr.errors import BadMessageError, UserError, require
from fedul_flwr.propagation import phases
from fedul_flwr.propagation.codes import nearest_points
from fedul_flwr.propagation.privacy import privacy_plan
from fedul_flwr.propagation.solve import (
    JointGraph,
    normalized_graph,
    propagation_columns,
    propagation_weights,
    with_names,
)
from fedul_flwr.secure.encrypted_distances import backend_of
from fedul_flwr.secure.messages import checked_array, exclude
from fedul_flwr.secure.rowsums import Words, rows_agree, sum_shares, wrong_rows
from fedul_flwr.secure.similarity import (
    ExcludedClientsError,
    SimilarityServer,
    TooFewClientsError,
)

log = logging.getLogger("flwr").log


NOBODY = -1
"""Owner of the names of classes in the graph."""


class Participant(Protocol):
    """A client, ordered by its partition."""

    @property
    def partition_id(self) -> int:
        """Its number."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether its number is less."""

    def __hash__(self) -> int:
        """Participants are keys."""


ClientT = TypeVar("ClientT", bound=Participant)
Ask = Callable[
    [str, Mapping[ClientT, Content], Callable[[ClientT, Content], None]], dict[ClientT, Content]
]
"""``(phase, content for each member, check) -> answers``; a member without an answer, or with one
that ``check`` refuses, has dropped out."""
Fail = Callable[[Mapping[ClientT, str]], None]
"""Counts members as failed, each with a reason."""


LONGEST, LARGEST = 900.0, 2e9
"""Limits of one propagation by its backend's estimate: seconds, and bytes of an encrypted message,
which can have at most 2^31 bytes."""


def require_packages(options: XCLPSettings) -> None:
    """Refuse a run whose propagation needs a package that is not installed."""
    require("xclp", "A propagation across clients", "numba", setting="method")
    backend_of(options.secure)


def warn_of_plaintext(options: XCLPSettings) -> None:
    """Log a warning if nothing is encrypted."""
    if options.secure == "plaintext":
        log(WARNING, "xclp.secure = 'plaintext': the server sees all codes; for simulations only.")
    elif options.seed_is_public:
        log(WARNING, "xclp.codes-seed = 'run': the server can test guesses at points.")


def log_privacy(settings: RunConfig) -> None:
    """Log the differential privacy that holds, if any."""
    for line in privacy_plan(settings).in_words():
        log(INFO, line)


def wrong_sum(clients: int) -> str:
    """Sentence for the log: so many clients got rows that are no sum."""
    return (
        f"{clients} client(s) got no labels: somebody's part of their sum was wrong, and nobody "
        "can tell whose."
    )


def refuse_unfit_sizes(options: XCLPSettings, sizes: Sequence[int], labeled: int) -> None:
    """Refuse, before the run starts, a propagation that is not private or would take too long."""
    backend = backend_of(options.secure)
    if len(sizes) < backend.fewest:
        raise UserError(
            f"Setting xclp.secure = {options.secure!r} needs {backend.fewest} clients or more in "
            f"every propagation: there are {len(sizes)}.",
            "too-few-clients",
            setting="xclp.secure",
        )
    if options.secure == "plaintext":
        return
    if labeled < options.min_labeled_clients:
        raise UserError(
            f"Setting xclp.min-labeled-clients = {options.min_labeled_clients}: only {labeled} "
            "client(s) of a propagation would have labels, and others could tell what one of them "
            "contributed.",
            "too-few-labeled-clients",
            setting="xclp.min-labeled-clients",
        )
    cost = backend.cost(list(sizes), options.num_bits)
    if cost.seconds > LONGEST or cost.traffic > LARGEST:
        raise UserError(
            f"Setting xclp.secure = {options.secure!r} would take about {cost.seconds / 60:,.0f} "
            f"minutes and {cost.traffic / 1e9:,.1f} GB for a propagation among {len(sizes)} "
            f"clients with {sum(sizes):,} points of {options.num_bits:,} bits; the limits are "
            f"{LONGEST / 60:.0f} minutes and {LARGEST / 1e9:.0f} GB: lower xclp.num-bits or the "
            "number of clients, or take 'plaintext' in a simulation.",
            "too-expensive",
            setting="xclp.secure",
        )


@dataclass(eq=False, repr=False)
class LabelPropagation(Generic[ClientT]):
    """One propagation among ``members``: :meth:`join` their points, then :meth:`sum_labels`.

    Attributes
    ----------
    tied : members that had to leave, and of which half may be honest.
    """

    ask: Ask[ClientT]
    fail: Fail[ClientT]
    options: XCLPSettings
    announced: Mapping[int, int]
    server_round: int
    seed: bytes
    num_classes: int
    names: int = 0
    names_power: float = 1.0

    def __post_init__(self) -> None:
        self.tied: set[ClientT] = set()
        self._backend = backend_of(self.options.secure)
        self._attempt = 0

    def join(self, members: Sequence[ClientT], weights: Arrays) -> tuple[list[ClientT], JointGraph]:
        """Phases 1 and 2: compare the points of all members and build their graph."""
        left = sorted(members)
        while True:
            try:
                return self._join(left, weights)
            except ExcludedClientsError as error:  # nothing of the attempt is used
                left = self._left_after(error, left)
                if len(left) < self._backend.fewest:
                    raise TooFewClientsError(
                        f"{len(left)} client(s) were left to compare points; it needs "
                        f"{self._backend.fewest} or more.",
                        error.left,
                    ) from error

    def _left_after(self, error: ExcludedClientsError, members: Iterable[ClientT]) -> list[ClientT]:
        """Count those that have to leave as failed; returns the others."""
        by_id = {member.partition_id: member for member in members}
        self.tied |= {by_id[client] for client in error.tied}
        if error.excluded:
            self.fail({by_id[client]: why for client, why in error.excluded.items()})
        return [by_id[client] for client in error.left]

    def _join(
        self, members: Sequence[ClientT], weights: Arrays
    ) -> tuple[list[ClientT], JointGraph]:
        """One attempt at :meth:`join`."""
        by_id = {member.partition_id: member for member in members}
        seed = self.seed if self.options.seed_is_public else None
        server = self._backend.server(list(by_id), self.options.num_bits, seed)
        model = {phases.MODEL + name: array for name, array in weights.items()}
        labeled: dict[int, NDArray[Any]] = {}
        edges: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        while messages := server.ask():
            first = not labeled
            contents = {
                by_id[client]: Content(
                    arrays={**message, **(model if first else {})},
                    values={phases.ROUND: self.server_round, phases.FIRST: first},
                )
                for client, message in messages.items()
            }
            compared = self.ask(
                phases.COMPARE, contents, partial(self._check_compared, server, first)
            )
            answers = {member.partition_id: answer.arrays for member, answer in compared.items()}
            if not answers:
                raise TooFewClientsError("No client took part in the propagation.", ())
            if first:
                labeled = {client: answer.pop(phases.LABELED) for client, answer in answers.items()}
                if self.names:
                    edges = {
                        client: (answer.pop(phases.NAMES), answer.pop(phases.COSINES))
                        for client, answer in answers.items()
                    }
            server.take(answers)
        sizes = server.sizes()
        neighbors = nearest_points(server.compared(), self.options.k)
        owners = np.repeat(np.array(list(sizes), dtype=np.int64), list(sizes.values()))
        has_label = np.concatenate([labeled[client] for client in sizes])
        if self.names:
            nearest, cosines = (
                np.concatenate([edges[client][i] for client in sizes]) for i in (0, 1)
            )
            of_edges = cosines ** (self.names_power / self.options.power)
            neighbors = with_names(neighbors, nearest, of_edges, self.num_classes)
            owners = np.concatenate([owners, np.full(self.num_classes, NOBODY)])
            has_label = np.concatenate([has_label, np.ones(self.num_classes, bool)])
        graph = normalized_graph(neighbors, self.options.power)
        joint = JointGraph(graph=graph, owners=owners, labeled=has_label)
        return [by_id[client] for client in sizes], joint

    def name_scores(
        self, members: Iterable[ClientT], joint: JointGraph
    ) -> dict[ClientT, NDArray[Any]]:
        """``(u, K)`` for each member, the names' influence on its unlabeled points."""
        names = np.flatnonzero(joint.owners == NOBODY)
        columns = propagation_columns(joint.graph, names, self.options.alpha)
        missing = ~joint.labeled
        return {m: columns[missing & (joint.owners == m.partition_id)] for m in members}

    def sum_labels(
        self, members: Iterable[ClientT], joint: JointGraph, *, withheld: int | None = None
    ) -> dict[ClientT, Content]:
        """Phase 3 up to the sum: each member's rows of Z, which only that member can read.

        If a member drops out here, its labels no longer count, but its points stay in the graph:
        the sum restarts without it, with new masks.
        """
        left = sorted(members)
        while len(left) >= self._backend.fewest and self._labeled(left, joint):
            clients = [member.partition_id for member in left]
            influences = propagation_weights(joint, clients, self.options.alpha, withheld=withheld)
            contents = {
                member: Content(
                    arrays={phases.COLUMNS: influences.columns[member.partition_id]},
                    values={
                        phases.ROUND: self.server_round,
                        phases.ATTEMPT: self._attempt,
                        phases.PARTICIPANTS: clients,
                        phases.UNLABELED_POINTS: list(influences.unlabeled.values()),
                        phases.WITHHELD: member.partition_id == withheld,
                    },
                )
                for member in left
            }
            self._attempt += 1
            rows = influences.rows()
            answers = self.ask(phases.SUM, contents, partial(self._check_share, rows))
            if len(answers) < len(left):
                left = [member for member in left if member in answers]
                continue
            sent = {member.partition_id: answers[member].arrays[phases.SENT] for member in left}
            checks = {client: share[0] for client, share in sent.items()}
            if rows_agree(checks):
                sums = sum_shares({client: share[1:] for client, share in sent.items()}, rows)
                return {m: Content(arrays={phases.ROWS: sums[m.partition_id]}) for m in left}
            left = self._audit(left, checks)
        least = self.options.min_labeled_clients
        is_open = self.options.secure == "plaintext"
        labeled = "" if is_open else f", {least} or more of them with labels"
        raise TooFewClientsError(
            f"{len(left)} client(s) were left for the sum of labels; it needs "
            f"{self._backend.fewest} or more{labeled}.",
            [member.partition_id for member in left],
        )

    def _audit(self, members: Sequence[ClientT], rows: Mapping[int, Words]) -> list[ClientT]:
        """Find out whose check row is wrong; returns the others. No rows of the sum are handed out.

        A sum of wrong rows without a contradiction is impossible: the words of two clients cancel.
        """
        form = (len(members) - 1, self.num_classes)

        def check(member: ClientT, answer: Content) -> None:
            origin = f"Client {member.partition_id} sent about the sum of labels"
            masked = form if self.options.secure != "plaintext" else (0, self.num_classes)
            checked_array(origin, answer.arrays, phases.CHECKS, np.uint64, masked)

        answers = self.ask(phases.AUDIT, {member: Content() for member in members}, check)
        if len(answers) < len(members):
            return [member for member in members if member in answers]
        words = {member.partition_id: answers[member].arrays[phases.CHECKS] for member in members}
        try:
            exclude(wrong_rows(rows, words), rows)
        except ExcludedClientsError as error:
            return self._left_after(error, members)
        raise RuntimeError("check rows without a contradiction add up to 0")

    def _check_compared(
        self, server: SimilarityServer, first: bool, member: ClientT, answer: Content
    ) -> None:
        """Refuse an invalid answer for the backend; the first one lists the labeled points.

        A client may have fewer points than it announced, as some have no direction, never more: the
        cost of a propagation was checked for the announced numbers.
        """
        client = member.partition_id
        size = server.check(client, answer.arrays)
        if size > self.announced[client]:
            raise BadMessageError(
                f"Client {client} sent more points than it announced.", "message-contradicts"
            )
        if first:
            origin = f"Client {client} sent"
            checked_array(origin, answer.arrays, phases.LABELED, np.bool_, (size,))
            if self.names:
                shape, arrays = (size, min(self.names, self.num_classes)), answer.arrays
                nearest = checked_array(origin, arrays, phases.NAMES, np.int64, shape)
                cosines = checked_array(origin, arrays, phases.COSINES, np.float64, shape)
                inside = (nearest >= 0) & (nearest < self.num_classes)
                if not (inside & (cosines >= 0) & (cosines <= 1)).all():
                    raise BadMessageError(
                        f"{origin} no names of classes, or no cosines.", "message-out-of-range"
                    )

    def _check_share(self, rows: Mapping[int, int], member: ClientT, answer: Content) -> None:
        """Refuse an answer that is not a valid partial sum for the others' ``rows``."""
        client = member.partition_id
        shape = (1 + sum(rows.values()) - rows[client], self.num_classes)
        origin = f"Client {client} sent for the sum of labels"
        checked_array(origin, answer.arrays, phases.SENT, np.uint64, shape)

    def _labeled(self, left: Sequence[ClientT], joint: JointGraph) -> bool:
        """Whether enough members have labels to hide the contribution of each."""
        if self.options.secure == "plaintext":
            return True
        owners = np.unique(joint.owners[joint.labeled])
        labeled = sum(member.partition_id in owners for member in left)
        return labeled >= self.options.min_labeled_clients
