"""A protocol for two clients that hides nothing from the evaluator, and clients who play it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedul_flwr.arrays import Bytes, Ints
from fedul_flwr.errors import UserError
from fedul_flwr.federated.messages import to_arrays, to_record
from fedul_flwr.propagation.codes import encode
from fedul_flwr.secure.encrypted_distances import STEP, STEPS, DistanceServer, respond
from fedul_flwr.secure.hamming.pairwise import Forms, Inbox, Party, StepResult
from fedul_flwr.secure.identities import Identities
from fedul_flwr.secure.messages import checked_array
from fedul_flwr.secure.similarity import Arrays, Cost, Task
from tests.propagation.conftest import Floats

BITS = 64
PUBLIC_SEED = bytes(range(32))

FOUR = {4: 5, 1: 3, 9: 6, 2: 4}
"""Points of each of four clients, whose order is not that of their numbers."""


class Toy:
    """The owner sends its codes, the evaluator adds a mask to distances, the server takes it off.

    ``prepare`` sends each peer who it is for, which ``offer`` looks at.
    """

    name = "toy"

    groups: ClassVar[Mapping[str, str]] = {"offer": "evaluators"}

    def payload_spec(self, step: str, own: int, peer: int) -> tuple[str, Forms]:
        if step == "answer":
            return "owners", {"mask": (np.uint16, (peer, own))}
        return "evaluators", {"masked": (np.uint16, (own, peer))}

    def prepare(self, party: Party) -> StepResult:
        peers = [peer for peer in party.sizes if peer != party.client]
        to_peers = {peer: {"pair": np.array([party.client, peer])} for peer in peers}
        session = np.frombuffer(party.session, np.uint8)
        state = {"prepared": np.array(party.client), "session": session}
        return StepResult(state=state, to_peers=to_peers)

    def offer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        assert state["prepared"] == party.client
        assert {*party.evaluators, *party.owners} == {*inbox}
        for peer, arrays in inbox.items():
            assert arrays["pair"].tolist() == [peer, party.client]
        assert party.num_bits == 8 * codes.shape[1]
        return StepResult(state=state, to_evaluators={"codes": codes} if party.evaluators else {})

    def answer(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        assert state["session"].tobytes() == party.session
        to_peers, to_server = {}, {}
        for owner in party.owners:
            found = np.bitwise_count(inbox[owner]["codes"][:, None] ^ codes).sum(-1, np.uint16)
            mask = np.frombuffer(party.entropy(found.nbytes), np.uint16).reshape(found.shape)
            to_peers[owner], to_server[owner] = {"masked": found + mask}, {"mask": mask}
        state = {"answered": codes}
        return StepResult(state=state, to_peers=to_peers, to_server=to_server)

    def reveal(self, party: Party, state: Arrays, codes: Bytes, inbox: Inbox) -> StepResult:
        np.testing.assert_array_equal(state["answered"], codes, strict=True)
        return StepResult(
            to_server={peer: {"masked": inbox[peer]["masked"]} for peer in party.evaluators}
        )

    def distances(
        self, sizes: tuple[int, int], num_bits: int, by_owner: Arrays, by_evaluator: Arrays
    ) -> Ints:
        origins = "The owner sent in step 'reveal'", "The evaluator sent in step 'answer'"
        masked = checked_array(origins[0], by_owner, "masked", np.uint16, sizes)
        mask = checked_array(origins[1], by_evaluator, "mask", np.uint16, sizes)
        found: Ints = (masked - mask).astype(np.int64)
        if found.max(initial=0) > num_bits:
            raise UserError("the owner sent a distance above L.")
        return found

    def cost(self, sizes: list[int], num_bits: int) -> Cost:
        return Cost(0.0, 0.0)


@dataclass
class Group:
    """Clients that compare their points; between two messages all they know is arrays.

    Attributes
    ----------
    features : points of each.
    seed : of the codes where it is no secret.
    lost : ``(step, client) -> whether it does not answer``.
    memories : what each client remembers.
    seeds : seed with which each client made its codes.
    run_seeds : seeds that clients have from earlier propagations.
    identities : of clients that have one.
    run : Flower's id of the run.
    heard : ``(step, client, message, reply)``.
    """

    features: Mapping[int, Floats]
    seed: bytes | None = None
    lost: Callable[[str, int], bool] = lambda step, client: False
    memories: dict[int, Arrays] = field(default_factory=dict)
    seeds: dict[int, bytes] = field(default_factory=dict)
    run_seeds: dict[int, bytes] = field(default_factory=dict)
    identities: Mapping[int, Identities] = field(default_factory=dict)
    run: int = 5
    heard: list[tuple[str, int, Arrays, Arrays]] = field(default_factory=list)

    def task(self, client: int) -> Task:
        points = self.features[client]

        def codes(seed: bytes) -> Bytes:
            self.seeds[client] = seed
            return encode(points, seed, BITS)

        seed = self.run_seeds.get(client, b"")
        identities = self.identities.get(client)
        public = self.seed is not None
        return Task(client, 7, len(points), BITS, 1, public, seed, codes, self.run, identities)

    def server(self) -> DistanceServer:
        return DistanceServer(Toy(), list(self.features), BITS, self.seed)

    def tell(self, client: int, message: Arrays) -> dict[str, NDArray[Any]]:
        """A client's answer, over the wire and back, from what it remembers to what it will."""
        remembered, message = travelled(self.memories.get(client, {})), travelled(message)
        remembered, reply = respond(Toy(), remembered, message, self.task(client))
        self.memories[client], reply = travelled(remembered), travelled(reply)
        self.heard.append((STEPS[int(message[STEP])], client, message, reply))
        return reply

    def answer(self, messages: Mapping[int, Arrays]) -> dict[int, dict[str, NDArray[Any]]]:
        """Answers of those that are not lost."""
        return {
            client: self.tell(client, message)
            for client, message in messages.items()
            if not self.lost(STEPS[int(message[STEP])], client)
        }

    def play(self, until: str | None = None) -> DistanceServer:
        """A server that has led everybody through all steps, or through those before ``until``."""
        server = self.server()
        for _ in STEPS[: STEPS.index(until)] if until else STEPS:
            server.take(self.answer(server.ask()))
        return server

    def codes(self, clients: list[int]) -> Bytes:
        """Codes of clients' points, under the seed that they used, in one place."""
        (seed,) = {self.seeds[client] for client in clients}
        return np.concatenate([encode(self.features[client], seed, BITS) for client in clients])


def travelled(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Arrays as a copy that went through Flower's records."""
    return to_arrays(to_record(arrays))


def group(sizes: Mapping[int, int], **options: Any) -> Group:
    """Clients with so many random points each."""
    rng = np.random.default_rng(5)
    return Group({client: rng.normal(size=(size, 6)) for client, size in sizes.items()}, **options)
