"""Clients of XCLP on features and labels of one's choice, asked as a grid would ask them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import RecordDict
from numpy.typing import NDArray

from fedul_flwr.arrays import Arrays, Ints
from fedul_flwr.client_apps.xclp import XCLPClient
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.data.types import Content, PartlyLabeledPoints, Propagated
from fedul_flwr.federated.client_data import ClientState, PartlyLabeledData
from fedul_flwr.federated.members import CheckAnswer
from fedul_flwr.federated.messages import from_records, to_records
from fedul_flwr.federated.nodes import ClientRef
from fedul_flwr.propagation.privacy import ClientNoise
from fedul_flwr.propagation.server import LabelPropagation
from tests.support.digits_settings import settings_of_client

Features = NDArray[np.floating[Any]]
BITS = 512
SEED = bytes(range(32))


class Party(XCLPClient):
    """A client with features and labels that it is given, instead of making them of images."""

    given: Features

    def _features(self, weights: Arrays, number: int) -> Any:
        del weights, number
        return self.given[self.graph.positions]

    @property
    def labels(self) -> Ints:
        return self.graph.labels

    @property
    def noise(self) -> ClientNoise:
        return self.propagation.noise

    def randomized(self, server_round: int) -> Ints:
        """Labels that it propagates to others."""
        return self.noise.labels(self.labels, self.graph.num_classes, server_round)


@dataclass
class Parties:
    """Some parties, each built anew for every message, as on a device.

    Attributes
    ----------
    features, labels : of each party; labels are -1 where unknown.
    options : settings of table ``xclp``.
    lost : ``(phase, number of asking, client) -> whether it does not answer``.
    heard : ``(phase, client, what it was sent, what it answered)`` of all messages.
    """

    features: Sequence[Features]
    labels: Sequence[Ints]
    options: Mapping[str, Any] = field(default_factory=dict)
    lost: Callable[[str, int, int], bool] = lambda phase, number, client: False
    classes: int = 5
    heard: list[tuple[str, int, Content, Content]] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        flat = {"method": "xclp", "xclp.num-bits": BITS, "xclp.secure": "plaintext", **self.options}
        self.settings = settings_of_client(flat)
        self.states = [RecordDict() for _ in self.features]
        self.asked: list[str] = []

    @property
    def members(self) -> list[ClientRef]:
        return [ClientRef(number, 1000 - number) for number in range(len(self.features))]

    def client(self, number: int) -> Party:
        count = len(self.labels[number])
        built = Party(
            self.settings,
            NodeConfig(partition_id=number, num_partitions=len(self.labels)),
            self.state(number),
        )
        examples = PartlyLabeledPoints(
            inputs=np.zeros((count, 1, 1, 1), np.uint8),
            points=np.arange(count),
            labels=np.asarray(self.labels[number], dtype=np.int64),
            new=np.zeros(count, dtype=np.bool_),
        )
        built.given = self.features[number]
        names = [str(k) for k in range(self.classes)]
        built.data = PartlyLabeledData(self.settings, built.node, {"class-names": names})
        built.data.examples = examples
        return built

    def state(self, number: int) -> ClientState:
        return ClientState(self.states[number])

    def ask(
        self, phase: str, contents: Mapping[ClientRef, Content], check: CheckAnswer
    ) -> dict[ClientRef, Content]:
        answers, number = {}, self.asked.count(phase)
        self.asked.append(phase)
        for member, content in contents.items():
            client = member.partition_id
            if self.lost(phase, number, client):
                continue
            # Over the wire and back, so that what is sent is what may be sent.
            sent = from_records(to_records(content))
            answer = self.client(client).on_phase(phase, from_records(to_records(content)))
            answers[member] = self.meddled(phase, member, from_records(to_records(answer)))
            check(member, answers[member])
            self.heard.append((phase, client, sent, from_records(to_records(answer))))
        return answers

    def meddled(self, phase: str, member: ClientRef, answer: Content) -> Content:
        """What of an answer arrives: all of it."""
        return answer

    def propagation(self, server_round: int = 1) -> LabelPropagation:
        options = self.settings[XCLPSettings]
        announced = {number: len(found) for number, found in enumerate(self.labels)}
        return LabelPropagation(
            self.ask, self.fail, options, announced, server_round, SEED, self.classes
        )

    def fail(self, reasons: Mapping[ClientRef, str]) -> None:
        """Who had to leave, and why."""
        self.failed |= {member.partition_id: reason for member, reason in reasons.items()}

    def propagate(self, *, withheld: int | None = None) -> dict[int, Propagated]:
        """Labels and confidences of all points of every client that is left."""
        propagation = self.propagation()
        left, joint = propagation.join(self.members, {})
        rows = propagation.sum_labels(left, joint, withheld=withheld)
        return {
            member.partition_id: self.client(member.partition_id).propagation.open(content.arrays)
            for member, content in rows.items()
        }


def split(points: Features, labels: Ints, sizes: Sequence[int]) -> dict[str, Any]:
    """Arguments of :class:`Parties` for points in the order of clients."""
    ends = np.cumsum(sizes)[:-1]
    return {"features": np.split(points, ends), "labels": np.split(labels, ends)}
