"""XCLP's phases among some clients (Algorithm 1), as the server leads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.common import log
from numpy.typing import NDArray

from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.semi import XCLPSettings
from fedul_flwr.data.types import Arrays
from fedul_flwr.errors import BadMessageError, UserError
from fedul_flwr.federated.messages import Content
from fedul_flwr.federated.registry import CheckAnswer, ClientRef
from fedul_flwr.propagation.graph import normalised_graph
from fedul_flwr.propagation.phases import (
    ATTEMPT,
    COLUMNS,
    COMPARE,
    FIRST,
    LABELED,
    MODEL,
    PARTICIPANTS,
    ROUND,
    ROWS,
    SENT,
    SUM,
    UNLABELED_POINTS,
    WITHHELD,
)
from fedul_flwr.propagation.privacy_plan import privacy_plan
from fedul_flwr.propagation.shares import JointGraph, influences
from fedul_flwr.secure.backends import BACKENDS
from fedul_flwr.secure.rowsums import combine
from fedul_flwr.secure.similarity import SimilarityServer, TooFewClientsError

Ask = Callable[[str, Mapping[ClientRef, Content], CheckAnswer], dict[ClientRef, Content]]
"""``(phase, what each member is sent, check) -> answers``; a member without an answer, or with one
that ``check`` refuses, has dropped out."""


LONGEST, LARGEST = 900.0, 2e9
"""Seconds and bytes that one propagation may take by its backend's estimate. A sealed message can
have 2^31 bytes."""


def warn_of_plaintext(options: XCLPSettings) -> None:
    """Say it aloud where nothing is encrypted."""
    if options.secure == "plaintext":
        log(WARNING, "xclp.secure = 'plaintext': the server sees all codes; for simulations only.")
    elif options.seed_is_public:
        log(WARNING, "xclp.codes-seed = 'run': the server can test guesses at points.")


def announce_privacy(settings: RunConfig) -> None:
    """Say what differential privacy holds, if any."""
    for line in privacy_plan(settings).in_words():
        log(INFO, line)


def refuse_beyond_reach(options: XCLPSettings, sizes: Sequence[int], labeled: int) -> None:
    """Refuse, before anything starts, what a backend cannot hide or do in a sensible time.

    Parameters
    ----------
    sizes : points of the clients of one propagation.
    labeled : how many of them have labels.

    Raises
    ------
    UserError
        Too few clients, or too few with labels; or an estimate above :data:`LONGEST` or
        :data:`LARGEST`; it says how far.
    """
    backend = BACKENDS[options.secure]
    if len(sizes) < backend.fewest:
        raise UserError(
            f"Setting xclp.secure = {options.secure!r} needs {backend.fewest} clients or more in "
            f"every propagation: there are {len(sizes)}."
        )
    if options.secure == "plaintext":
        return
    if labeled < options.fewest_labeled:
        raise UserError(
            f"Setting xclp.fewest-labeled = {options.fewest_labeled}: only {labeled} client(s) "
            "of a propagation would have labels, and others could tell what one of them "
            "contributed."
        )
    cost = backend.cost(list(sizes), options.num_bits)
    if cost.seconds > LONGEST or cost.traffic > LARGEST:
        raise UserError(
            f"Setting xclp.secure = {options.secure!r} would take about {cost.seconds / 60:,.0f} "
            f"minutes and {cost.traffic / 1e9:,.1f} GB for a propagation among {len(sizes)} "
            f"clients with {sum(sizes):,} points of {options.num_bits:,} bits; the limits are "
            f"{LONGEST / 60:.0f} minutes and {LARGEST / 1e9:.0f} GB: lower xclp.num-bits or the "
            "number of clients, or take 'plaintext' in a simulation."
        )


class LabelPropagation:
    """One propagation among ``members``: :meth:`join` their points, then :meth:`sum_labels`.

    Parameters
    ----------
    ask : sends a phase and collects answers.
    options : settings of the propagation.
    server_round : by which clients tell one propagation from another.
    seed : 32 bytes for the codes, where their seed is no secret.
    num_classes : K.
    """

    def __init__(
        self, ask: Ask, options: XCLPSettings, server_round: int, seed: bytes, num_classes: int
    ) -> None:
        self._num_classes = num_classes
        self._ask = ask
        self._options = options
        self._round = server_round
        self._seed = seed if options.seed_is_public else None
        self._backend = BACKENDS[options.secure]
        self._attempt = 0

    def join(
        self, members: Sequence[ClientRef], weights: Arrays
    ) -> tuple[list[ClientRef], JointGraph]:
        """Phases 1 and 2: compare the points of all members and build their graph.

        Parameters
        ----------
        members : who is asked; one that drops out is as if it had not been there.
        weights : the model that makes the features, if there is one.

        Returns
        -------
        The members that are left, and the graph of their points.
        """
        by_id = {member.partition_id: member for member in sorted(members)}
        server = self._backend.server(list(by_id), self._options.num_bits, self._seed)
        model = {MODEL + name: array for name, array in weights.items()}
        labeled: dict[int, NDArray[Any]] = {}
        while messages := server.ask():
            first = not labeled
            contents = {
                by_id[client]: Content(
                    arrays={**message, **(model if first else {})},
                    values={ROUND: self._round, FIRST: first},
                )
                for client, message in messages.items()
            }
            found = self._ask(COMPARE, contents, partial(_check_compared, server, first))
            answers = {member.partition_id: answer.arrays for member, answer in found.items()}
            if not answers:
                raise TooFewClientsError("No client took part in the propagation.", ())
            if first:
                labeled = {client: answer.pop(LABELED) for client, answer in answers.items()}
            server.take(answers)
        sizes = server.sizes()
        graph = normalised_graph(server.neighbours(self._options.k), self._options.power)
        joint = JointGraph(
            graph=graph,
            clients=tuple(sizes),
            owners=np.repeat(np.array(list(sizes), dtype=np.int64), list(sizes.values())),
            labeled=np.concatenate([labeled[client] for client in sizes]),
        )
        return [by_id[client] for client in sizes], joint

    def sum_labels(
        self, members: Iterable[ClientRef], joint: JointGraph, *, withheld: int | None = None
    ) -> dict[ClientRef, Content]:
        """Phase 3 up to the sum: rows of Z for each member, which only it can read.

        A member that drops out here takes its labels along, while its points still carry those of
        others: the sum is begun anew without it, under new masks.

        Parameters
        ----------
        withheld : a client whose labels are left out; it gets rows of all its points.
        """
        left = sorted(members)
        while len(left) >= self._backend.fewest and self._labeled(left, joint):
            clients = [member.partition_id for member in left]
            found = influences(joint, clients, self._options.alpha, withheld=withheld)
            contents = {
                member: Content(
                    arrays={COLUMNS: found.columns[member.partition_id]},
                    values={
                        ROUND: self._round,
                        ATTEMPT: self._attempt,
                        PARTICIPANTS: clients,
                        UNLABELED_POINTS: list(found.unlabeled.values()),
                        WITHHELD: member.partition_id == withheld,
                    },
                )
                for member in left
            }
            self._attempt += 1
            rows = found.rows()
            answers = self._ask(SUM, contents, partial(self._check_share, rows))
            if len(answers) == len(left):
                sent = {member.partition_id: answers[member].arrays[SENT] for member in left}
                sums = combine(sent, rows)
                return {m: Content(arrays={ROWS: sums[m.partition_id]}) for m in left}
            left = [member for member in left if member in answers]
        raise TooFewClientsError(
            f"{len(left)} client(s) were left for the sum of labels; it needs "
            f"{self._backend.fewest} or more{self._of_whom()}.",
            [member.partition_id for member in left],
        )

    def _check_share(self, rows: Mapping[int, int], member: ClientRef, answer: Content) -> None:
        """Refuse what is no part of the sum of the others' ``rows``."""
        client, share = member.partition_id, answer.arrays.get(SENT)
        if share is None:
            raise BadMessageError(f"Client {client} sent no share of the sum of labels.")
        shape = (sum(rows.values()) - rows[client], self._num_classes)
        if share.dtype != np.uint64 or share.shape != shape:
            raise BadMessageError(
                f"Client {client} sent a share {share.dtype} {share.shape}; it must be uint64 "
                f"{shape}."
            )

    def _labeled(self, left: Sequence[ClientRef], joint: JointGraph) -> bool:
        """Whether so many of them have labels that no one's contribution can be told."""
        if self._options.secure == "plaintext":
            return True
        owners = np.unique(joint.owners[joint.labeled])
        labeled = sum(member.partition_id in owners for member in left)
        return labeled >= self._options.fewest_labeled

    def _of_whom(self) -> str:
        if self._options.secure == "plaintext":
            return ""
        return f", {self._options.fewest_labeled} or more of them with labels"


def _check_compared(
    server: SimilarityServer, first: bool, member: ClientRef, answer: Content
) -> None:
    """Refuse what is no answer of the backend; the first says which points have a label."""
    client = member.partition_id
    size = server.check(client, answer.arrays)
    found = answer.arrays.get(LABELED)
    if first and (found is None or found.dtype != np.bool_ or found.shape != (size,)):
        raise BadMessageError(f"Client {client} did not say which of its {size} points it knows.")
