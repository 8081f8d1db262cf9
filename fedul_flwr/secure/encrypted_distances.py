"""Encrypted distances between points of many clients: each client's side, and the server's.

The server sends five messages, each with an answer. ``keys``: a public key. ``shares``: the
participants are fixed, and every client sends all others its share of the seed, to which it has
committed itself with its key; or the seed that it has used before in this run. ``offer``,
``answer``, ``reveal``: clients compute codes and do the protocol's three steps. Messages between
clients are encrypted (:mod:`fedul_flwr.secure.session`); the server gets only its own messages.
A client that cannot use a message of another one answers with a complaint about its sender.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes, check_num_bits
from fedul_flwr.errors import BadMessageError, UserError, require
from fedul_flwr.secure.hamming.pairwise import PLAINTEXT, PairwiseHamming, Party, StepResult
from fedul_flwr.secure.hamming.rlwe import RLWE
from fedul_flwr.secure.identities import Purpose
from fedul_flwr.secure.messages import (
    COMPLAINT,
    PeerError,
    check_complaint,
    checked_array,
    complain,
    exclude,
    messages_from,
    subjects,
)
from fedul_flwr.secure.session import (
    FEWEST,
    FEWEST_BYTES,
    FEWEST_SEALED,
    FROM,
    KEY_BYTES,
    NONCE,
    PUBLIC,
    SIGNATURES,
    TO,
    Session,
    bytes_array,
    check_key,
    is_sealed,
    join,
    mask_key,
    new_key,
    pairs_of,
    participants_message,
    require_enough,
    require_signed,
)
from fedul_flwr.secure.similarity import (
    Arrays,
    HammingDistances,
    SimilarityBackend,
    Task,
    TooFewClientsError,
)
from fedul_flwr.secure.stored import Counts, Rows, Stored

KEYS, SHARES, OFFER, ANSWER, REVEAL = STEPS = ("keys", "shares", "offer", "answer", "reveal")

STEP, SEED, POINTS, OWN_DISTANCES = "step", "seed", "num-points", "own-distances"
EVALUATORS, OWNERS = "to-evaluators", "to-owners"
GROUP, TELL = "group/", "tell/"
"""Arrays of messages: the number of the step; with ``keys``, a seed that is no secret, and an
answer's number of points; distances within a client; what is sealed for several. Prefixes: from a
client for several, and what the server is told about a pair."""

COMMITMENT, COMMITMENTS = "commitment", "commitments"
"""Arrays: a hash of a client's share and of its seed of before; those of all participants, in their
order."""

SHARE, RUN_SEED, CONFIRM = "share", "run-seed", "confirm"
CONTENT_KEY, MASK_SHARE = "content-key", "mask-share"
"""Arrays a client sends its peers, beside those of the protocol for two clients."""

SENDS: Mapping[str, tuple[str, str]] = {
    PUBLIC: ("a public key of this propagation", "the server and all clients"),
    SIGNATURES: ("its owner's signature of that key, if it has one", "the server and all clients"),
    POINTS: ("how many of its points are compared", "the server and all clients"),
    COMMITMENT: ("a hash of its share of the seed", "the server and all clients"),
    OWN_DISTANCES: ("Hamming distances between the codes of its own points", "the server"),
    "to[-/]*": (  # TO, EVALUATORS and OWNERS
        "shares of the seed, encrypted codes or what is made of them",
        "other clients, sealed for them",
    ),
    f"{TELL}*": (
        "its half of the distances between its points and others'; with the other half the server "
        "has the distances",
        "the server",
    ),
}
"""Arrays of replies, see :attr:`fedul_flwr.secure.similarity.SimilarityBackend.sends`."""


# What a client keeps


class Seeds(Stored):
    """A client's share of the seed, and the seed that it has used before in this run, if any."""

    share: bytes
    run_seed: bytes

    @property
    def commitment(self) -> bytes:
        """A hash of both, from which neither follows, as the share is random."""
        return hashlib.sha256(b"fedul-flwr share 1" + self.share + self.run_seed).digest()

    def message(self) -> dict[str, NDArray[Any]]:
        """What is sealed for peers."""
        used = {RUN_SEED: bytes_array(self.run_seed)} if self.run_seed else {}
        return {SHARE: bytes_array(self.share), **used}


class DistanceStage(Stored):
    """What a client keeps after a step of encrypted distances."""


class Committed(DistanceStage):
    """After ``keys``; the seed is public, or empty where it is a secret of the clients."""

    private: bytes
    nonce: bytes
    public_seed: bytes
    seeds: Seeds


class Shared(DistanceStage):
    """After ``shares``; with the ``commitments`` of all participants."""

    session: Session
    public_seed: bytes
    seeds: Seeds
    commitments: Rows
    of_protocol: Arrays


class Coded(DistanceStage):
    """After ``offer``; ``confirm`` is a hash of the seed that its codes are of."""

    session: Session
    confirm: bytes
    codes: Bytes
    of_protocol: Arrays


class Answered(DistanceStage):
    """After ``answer``."""

    session: Session
    codes: Bytes
    of_protocol: Arrays


class Revealed(DistanceStage):
    """After ``reveal``, and for the sums of labels that follow.

    Attributes
    ----------
    sizes : numbers of points of the participants that are left.
    roots : secrets with each other one of them, for masks.
    attempt : the last sum of labels; none is -1.
    """

    sizes: Counts
    roots: Rows
    attempt: int = -1


Reply = dict[str, NDArray[Any]]


def respond(
    protocol: PairwiseHamming, remembered: Arrays, message: Arrays, task: Task
) -> tuple[Arrays, Arrays]:
    """Answer one of the five messages, see :data:`fedul_flwr.secure.similarity.Respond`."""
    step = message.get(STEP)
    if step is None or step.dtype != np.int64 or step.shape != () or not 0 <= step < len(STEPS):
        raise UserError("The server sent no step of encrypted distances.", "server-out-of-turn")
    stage = DistanceStage.from_arrays(remembered) if remembered else None
    before, handler = _HANDLERS[STEPS[int(step)]]
    if type(stage) is not before:
        raise UserError(
            f"The server asked for step {STEPS[int(step)]!r} out of turn.", "server-out-of-turn"
        )
    try:
        stage, reply = handler(protocol, stage, message, task)
    except PeerError as error:  # this propagation has ended: nothing of it is needed any more
        return complain(error)
    return stage.to_arrays(), reply


def mask_keys(
    remembered: Arrays, task: Task, unlabeled: Mapping[int, int], attempt: int
) -> tuple[Arrays, dict[int, bytes]]:
    """Keys of the masks between this client and the other participants of a sum of labels."""
    stage = DistanceStage.from_arrays(remembered) if remembered else None
    if not isinstance(stage, Revealed) or attempt <= stage.attempt:
        raise UserError("The server asked for the sum of labels out of turn.", "server-out-of-turn")
    require_enough(unlabeled)
    sizes = stage.sizes
    if task.client not in unlabeled or not all(
        client in sizes and 0 <= count <= sizes[client] for client, count in unlabeled.items()
    ):
        raise UserError(
            "The server named others for the sum of labels than before.", "server-names-others"
        )
    labeled = sum(sizes[client] > count for client, count in unlabeled.items())
    if labeled < task.min_labeled_clients:
        raise UserError(
            f"The server asked for a sum of the labels of {labeled} client(s): "
            f"xclp.min-labeled-clients = {task.min_labeled_clients}.",
            "server-asks-too-much",
        )
    keys = {peer: mask_key(stage.roots[peer], attempt) for peer in unlabeled if peer != task.client}
    return Revealed(sizes, stage.roots, attempt).to_arrays(), keys


# The five steps


def _keys(
    protocol: PairwiseHamming, before: None, message: Arrays, task: Task
) -> tuple[Committed, Reply]:
    del protocol, before
    origin = f"The server sent in step {KEYS!r}"
    nonce = checked_array(origin, message, NONCE, np.uint8, (KEY_BYTES,)).tobytes()
    private, public = new_key(_purpose(task, nonce), task.identities)
    if (SEED in message) != task.seed_is_public:
        raise UserError(
            "The server and this client differ in whether the seed is a secret.",
            "server-asks-too-much",
        )
    public_seed = b""
    if task.seed_is_public:
        public_seed = checked_array(origin, message, SEED, np.uint8, (KEY_BYTES,)).tobytes()
    seeds = Seeds(os.urandom(KEY_BYTES), b"" if task.seed_is_public else task.run_seed)
    reply: Reply = {
        POINTS: np.array(task.num_points, np.int64),
        COMMITMENT: bytes_array(seeds.commitment),
    }
    return Committed(private, nonce, public_seed, seeds), {**public, **reply}


def _shares(
    protocol: PairwiseHamming, before: Committed, message: Arrays, task: Task
) -> tuple[Shared, Reply]:
    purpose, seeds = _purpose(task, before.nonce), before.seeds
    session = join(task.client, before.private, message, task.num_points, purpose)
    require_signed(session, message, purpose, task.identities)
    shape = (len(session.public), KEY_BYTES)
    rows = checked_array("The server sent", message, COMMITMENTS, np.uint8, shape)
    commitments = dict(zip(session.public, map(np.ndarray.tobytes, rows), strict=True))
    result = protocol.prepare(_party(session, session.peers, task))
    reply = _post(session, SHARES, result, dict.fromkeys(session.peers, seeds.message()))
    return Shared(session, before.public_seed, seeds, commitments, result.state), reply


def _offer(
    protocol: PairwiseHamming, before: Shared, message: Arrays, task: Task
) -> tuple[Coded, Reply]:
    session = before.session
    inbox = _open(session, SHARES, message)
    seeds = {task.client: before.seeds}
    for peer, arrays in inbox.items():
        with messages_from(peer):
            share = _pop_bytes(peer, SHARES, arrays, SHARE)
            used = _pop_bytes(peer, SHARES, arrays, RUN_SEED) if RUN_SEED in arrays else b""
            seeds[peer] = Seeds(share, used)
            if seeds[peer].commitment != before.commitments[peer]:
                raise UserError(
                    f"Client {peer} sent another share than that of its commitment.", "peer-cheated"
                )
    seed = _seed(session, seeds)
    confirm = hashlib.sha256(seed + b"confirm").digest()
    besides = {peer: {CONFIRM: bytes_array(confirm)} for peer in inbox}
    codes = task.encode(before.public_seed if task.seed_is_public else seed)
    result = protocol.offer(_party(session, inbox, task), before.of_protocol, codes, inbox)
    reply = _post(session, OFFER, result, besides)
    reply[OWN_DISTANCES] = _within(codes, task.num_bits)
    return Coded(session, confirm, codes, result.state), reply


def _answer(
    protocol: PairwiseHamming, before: Coded, message: Arrays, task: Task
) -> tuple[Answered, Reply]:
    session, codes = before.session, before.codes
    inbox = _open(session, OFFER, message)
    for peer, arrays in inbox.items():
        with messages_from(peer):
            confirmed = _pop_bytes(peer, OFFER, arrays, CONFIRM)
            if not hmac.compare_digest(confirmed, before.confirm):
                raise UserError(
                    f"Clients {task.client} and {peer} have made different seeds.", "peer-cheated"
                )
    result = protocol.answer(_party(session, inbox, task), before.of_protocol, codes, inbox)
    masks = {peer: {MASK_SHARE: session.mask_share(peer)} for peer in inbox}
    return Answered(session, codes, result.state), _post(session, ANSWER, result, masks)


def _reveal(
    protocol: PairwiseHamming, before: Answered, message: Arrays, task: Task
) -> tuple[Revealed, Reply]:
    session = before.session
    inbox = _open(session, ANSWER, message)
    shares = {}
    for peer, arrays in inbox.items():
        with messages_from(peer):
            shares[peer] = _pop_bytes(peer, ANSWER, arrays, MASK_SHARE)
    party = _party(session, inbox, task)
    result = protocol.reveal(party, before.of_protocol, before.codes, inbox)
    left = {task.client, *shares}
    sizes = {client: size for client, size in session.sizes.items() if client in left}
    return Revealed(sizes, session.mask_roots(shares)), _post(session, REVEAL, result, {})


Handler = Callable[[PairwiseHamming, Any, Arrays, Task], tuple[DistanceStage, Reply]]
_HANDLERS: Mapping[str, tuple[type[DistanceStage | None], Handler]] = {
    KEYS: (NoneType, _keys),
    SHARES: (Committed, _shares),
    OFFER: (Shared, _offer),
    ANSWER: (Coded, _answer),
    REVEAL: (Answered, _reveal),
}
"""For each step the stage in which it is in turn."""


# Helpers of all steps


def _purpose(task: Task, nonce: bytes) -> Purpose:
    return Purpose("propagation", task.run, task.server_round, nonce)


def _party(session: Session, present: Mapping[int, Any] | list[int], task: Task) -> Party:
    """This client's view of the remaining peers."""
    evaluators, owners = pairs_of(task.client, list(session.public))
    return Party(
        client=task.client,
        evaluators=tuple(peer for peer in evaluators if peer in present),
        owners=tuple(peer for peer in owners if peer in present),
        sizes=session.sizes,
        num_bits=task.num_bits,
        session=session.number,
    )


def _post(
    session: Session, step: str, result: StepResult, besides: Mapping[int, Arrays]
) -> dict[str, NDArray[Any]]:
    """Messages of a step: the server's, and encrypted ones to the peers in ``besides``, with what
    is there for each."""
    reply: dict[str, NDArray[Any]] = {}
    private = {peer: {**more, **result.to_peers.get(peer, {})} for peer, more in besides.items()}
    groups = zip(
        (EVALUATORS, OWNERS),
        pairs_of(session.client, list(session.public)),
        (result.to_evaluators, result.to_owners),
        strict=True,
    )
    for role, readers, shared in groups:
        if shared:
            key, reply[role] = session.seal_for_several(step, shared, os.urandom)
            for peer in readers:
                if peer in private:
                    private[peer][CONTENT_KEY] = bytes_array(key)
    for peer, arrays in private.items():
        reply[f"{TO}{peer}"] = session.seal(peer, step, arrays, os.urandom)
    for peer, complaint in result.to_server.items():
        reply |= {f"{TELL}{peer}/{name}": array for name, array in complaint.items()}
    return reply


def _open(session: Session, step: str, message: Arrays) -> dict[int, dict[str, NDArray[Any]]]:
    """Decrypted messages of ``step``, by peer; peers without one have dropped out."""
    inbox = {}
    for peer in session.peers:
        if (sealed := message.get(f"{FROM}{peer}")) is None:
            continue
        arrays = session.unseal(peer, step, sealed)
        if CONTENT_KEY in arrays:
            with messages_from(peer):
                key = _pop_bytes(peer, step, arrays, CONTENT_KEY)
            group = message.get(f"{GROUP}{peer}")
            arrays |= session.unseal_for_several(peer, step, group, key)
        inbox[peer] = arrays
    require_enough([session.client, *inbox])
    return inbox


def _seed(session: Session, seeds: Mapping[int, Seeds]) -> bytes:
    """The seed that most of those have who have one, of several the one of the first client that
    has one of these; where nobody has one, a new one from all shares.

    So a run has one seed, though its rounds have other clients: more projections of the same
    vectors would tell more of them.
    """
    before = [seeds[client].run_seed for client in sorted(seeds) if seeds[client].run_seed]
    if before:
        ((seed, _),) = Counter(before).most_common(1)  # of equal counts the first one
        return seed
    return session.seed({client: sent.share for client, sent in seeds.items()})


def _pop_bytes(peer: int, step: str, arrays: dict[str, NDArray[Any]], name: str) -> bytes:
    """Remove and return 32 bytes from a peer's message that are not for the protocol."""
    origin = f"Client {peer} sent in step {step!r}"
    checked_array(origin, arrays, name, np.uint8, (KEY_BYTES,))
    return arrays.pop(name).tobytes()


def _within(codes: Bytes, num_bits: int) -> NDArray[np.uint16]:
    """Hamming distances ``(n, n)`` between a client's own points, which the server also needs."""
    signs = 1 - 2 * np.unpackbits(codes, axis=1).astype(np.float32)
    return ((num_bits - signs @ signs.T) / 2).astype(np.uint16)


MOST_BITS = 2**16 - 8
"""Largest L: distances are uint16."""


class DistanceServer:
    """Runs the five steps of :mod:`fedul_flwr.secure.encrypted_distances` with clients.

    A client that does not answer a step has dropped out; its earlier answers are not used.
    """

    def __init__(
        self,
        protocol: PairwiseHamming,
        clients: Sequence[int],
        num_bits: int,
        seed: bytes | None = None,
    ) -> None:
        check_num_bits(num_bits)
        if num_bits > MOST_BITS:
            raise UserError(
                f"Codes of {num_bits} bits are too long to be compared in secret: "
                f"xclp.num-bits must be {MOST_BITS} or less.",
                "setting-out-of-range",
            )
        self._protocol = protocol
        self._num_bits = num_bits
        self._seed = seed
        self._left = list(clients)
        self._asked = self._left  # those left when the step began: they are told of, if not heard
        self._step = 0
        self._participants: list[int] = []
        self._keys: dict[int, Arrays] = {}
        self._sizes: dict[int, int] = {}
        self._sent: dict[int, Reply] = {}
        self._own_distances: dict[int, NDArray[Any]] = {}
        self._received: dict[tuple[int, int], Reply] = {}

    def ask(self) -> Mapping[int, Arrays]:
        """The next step's message to each client."""
        self._asked = self._left
        if self._step == len(STEPS):
            return {}
        step = {STEP: np.array(self._step, np.int64)}
        if self._step == 0:
            public = {} if self._seed is None else {SEED: bytes_array(self._seed)}
            nonce = bytes_array(os.urandom(KEY_BYTES))
            return {client: {**step, NONCE: nonce, **public} for client in self._left}
        if self._step == 1:
            self._participants = sorted(self._left)
            everybody = participants_message({c: self._keys[c] for c in self._left}, self._sizes)
            commitments = [self._keys[client][COMMITMENT] for client in self._participants]
            everybody[COMMITMENTS] = np.stack(commitments)
            return {client: {**step, **everybody} for client in self._left}
        messages = {client: {**step, **self._post(client)} for client in self._left}
        self._sent = {}
        return messages

    def take(self, answers: Mapping[int, Arrays]) -> None:
        """Process the answers to one step."""
        self._left = [client for client in self._left if client in answers]
        if len(self._left) < FEWEST:
            raise TooFewClientsError(
                f"{len(self._left)} client(s) answered step {STEPS[self._step]!r} of the secure "
                f"propagation; it needs {FEWEST} or more.",
                self._left,
            )
        for client in self._left:
            self.check(client, answers[client])
        if STEPS[self._step] == KEYS:  # two have sent one public key
            keys = {client: answers[client][PUBLIC].tobytes() for client in self._left}
            pairs = [(a, b) for a, b in combinations(self._left, 2) if keys[a] == keys[b]]
        else:
            pairs = subjects({client: answers[client] for client in self._left})
        exclude(pairs, self._left)
        for client in self._left:
            self._hear(client, dict(answers[client]))
        self._step += 1

    def check(self, client: int, answer: Arrays) -> int:
        """Refuse a malformed answer, with client and step; returns its number of points."""
        step = STEPS[self._step]
        origin = f"Client {client} sent in step {step!r}"
        if step == KEYS:
            check_key(origin, answer)
            checked_array(origin, answer, COMMITMENT, np.uint8, (KEY_BYTES,))
            size = int(checked_array(origin, answer, POINTS, np.int64, ()))
            if size < 0:
                raise BadMessageError(
                    f"{origin} a number of points below 0; it must be 0 or more.",
                    "message-out-of-range",
                )
            return size
        if COMPLAINT in answer:
            check_complaint(origin, client, answer, self._asked)
            return self._sizes[client]
        if step == OFFER:
            shape = (self._sizes[client], self._sizes[client])
            codes = checked_array(origin, answer, OWN_DISTANCES, np.uint16, shape)
            if codes.max(initial=0) > self._num_bits or not np.array_equal(codes, codes.T):
                raise BadMessageError(
                    f"{origin} no distances of its points; they must be symmetric and at most L.",
                    "message-form",
                )
        listed = self._check_reply(origin, client, answer) if step in (ANSWER, REVEAL) else set()
        sent = self._check_post(client, answer) if step != REVEAL else set()
        numbers = listed | sent | {OWN_DISTANCES} if step == OFFER else listed | sent
        if odd := sorted(answer.keys() - numbers):
            raise BadMessageError(
                f"{origin} {odd[0]!r}, which was not asked for.", "message-unasked"
            )
        return self._sizes[client]

    def sizes(self) -> Mapping[int, int]:
        """Number of points of each client that answered every step."""
        return {client: self._sizes[client] for client in self._left}

    def distances(self) -> NDArray[np.uint16]:
        """H, ``(n, n)``, of all points of the remaining clients."""
        sizes = self.sizes()
        ends = np.cumsum([0, *sizes.values()])
        slices = {c: slice(ends[i], ends[i + 1]) for i, c in enumerate(sizes)}
        distances = np.zeros((ends[-1], ends[-1]), dtype=np.uint16)
        contradictions = []
        for owner in sizes:
            distances[slices[owner], slices[owner]] = self._own_distances[owner]
            for evaluator in pairs_of(owner, self._participants)[0]:
                if evaluator in sizes:
                    try:
                        block = self._protocol.distances(
                            (sizes[owner], sizes[evaluator]),
                            self._num_bits,
                            self._received[owner, evaluator],
                            self._received[evaluator, owner],
                        )
                    except UserError:
                        contradictions.append((owner, evaluator))
                        continue
                    distances[slices[owner], slices[evaluator]] = block
                    distances[slices[evaluator], slices[owner]] = block.T
        exclude(contradictions, sizes)
        return distances

    def compared(self) -> HammingDistances:
        """Distances of the points of all remaining clients."""
        return HammingDistances(self.distances(), self._num_bits)

    def _hear(self, client: int, answer: Reply) -> None:
        """Store a client's messages to the server and to other clients."""
        step = STEPS[self._step]
        if step == KEYS:
            self._keys[client] = answer
            self._sizes[client] = int(answer[POINTS])
            return
        if step == OFFER:
            self._own_distances[client] = answer.pop(OWN_DISTANCES)
        for name in [name for name in answer if name.startswith(TELL)]:
            peer, _, what = name.removeprefix(TELL).partition("/")
            self._received.setdefault((client, int(peer)), {})[what] = answer.pop(name)
        if step != REVEAL:
            self._sent[client] = answer

    def _post(self, client: int) -> Reply:
        """Messages of the remaining clients to one client."""
        post: Reply = {}
        for sender in self._left:
            sent = self._sent[sender]
            if f"{TO}{client}" in sent:
                post[f"{FROM}{sender}"] = sent[f"{TO}{client}"]
            for role, readers in zip(
                (EVALUATORS, OWNERS), pairs_of(sender, self._participants), strict=True
            ):
                if role in sent and client in readers:
                    post[f"{GROUP}{sender}"] = sent[role]
        return post

    def _peers(self, client: int, role: str) -> list[int]:
        """Remaining peers of a client with a role in their pair."""
        evaluators, owners = pairs_of(client, self._participants)
        return [p for p in (evaluators if role == "evaluators" else owners) if p in self._asked]

    def _check_reply(self, origin: str, client: int, answer: Arrays) -> set[str]:
        """Check what the server is told of pairs; returns the names of the arrays."""
        step, names = STEPS[self._step], set()
        role, _ = self._protocol.payload_spec(step, 0, 0)
        for peer in self._peers(client, role):
            _, forms = self._protocol.payload_spec(step, self._sizes[client], self._sizes[peer])
            for name, (dtype, shape) in forms.items():
                names.add(f"{TELL}{peer}/{name}")
                checked_array(origin, answer, f"{TELL}{peer}/{name}", dtype, shape)
        return names

    def _check_post(self, client: int, answer: Arrays) -> set[str]:
        """Check that all peers that are left get sealed messages; returns the arrays' names.

        A peer without a message would take the client for a dropout; others would not.
        """
        step = STEPS[self._step]
        names = {f"{TO}{peer}": f"client {peer}" for peer in self._left if peer != client}
        fewest = dict.fromkeys(names, FEWEST_SEALED)
        role = self._protocol.groups.get(step)
        if role is not None and self._peers(client, role):
            names[EVALUATORS if role == "evaluators" else OWNERS] = f"its {role}"
        for name, reader in names.items():
            if not is_sealed(answer.get(name), fewest.get(name, FEWEST_BYTES)):
                raise BadMessageError(
                    f"Client {client} sent {reader} no message in step {step!r}.",
                    "message-incomplete",
                )
        # Messages to clients that have dropped out meanwhile are passed on to nobody.
        return names.keys() | {name for name in answer if name.startswith(TO)}


# Backends of similarity by name.


def secure_backend(protocol: PairwiseHamming) -> SimilarityBackend:
    """A backend that compares points by a protocol for two clients, and sums masked labels."""
    return SimilarityBackend(
        name=protocol.name,
        respond=partial(respond, protocol),
        mask_keys=mask_keys,
        server=partial(DistanceServer, protocol),
        cost=protocol.cost,
        fewest=FEWEST,
        sends=SENDS,
    )


def hamming_protocol(name: str) -> PairwiseHamming:
    """The protocol for two clients: ``"rlwe"``, or one of the paper's, ``"paillier"``, ``"ot"``."""
    if name == RLWE.name:
        return RLWE
    needed = partial(require, "paper-protocols", f"Setting xclp.secure = {name!r}")
    if name == "paillier":
        needed("gmpy2", setting="xclp.secure")
        from fedul_flwr.secure.hamming.paillier import PAILLIER

        return PAILLIER
    needed("nacl", setting="xclp.secure")
    from fedul_flwr.secure.hamming.ot import OT

    return OT


BACKENDS: dict[str, SimilarityBackend] = {
    PLAINTEXT.name: PLAINTEXT,
    RLWE.name: secure_backend(RLWE),
}
"""Those loaded so far, by values of the setting ``xclp.secure``; :func:`backend_of` has all."""


def backend_of(name: str) -> SimilarityBackend:
    """The backend of a value of the setting ``xclp.secure``."""
    if name not in BACKENDS:
        BACKENDS[name] = secure_backend(hamming_protocol(name))
    return BACKENDS[name]
