"""Simulated clients on disk for audits of what they open."""

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import RecordDict
from flwr.common import NDArrays

from fedul_flwr.arrays import Arrays
from fedul_flwr.baselines import fedsem
from fedul_flwr.baselines.class_shares import CLASS_SHARES
from fedul_flwr.baselines.fedsem import FedSemClient
from fedul_flwr.baselines.fedsiam import TEACHER, TEACHER_STEPS, FedSiamClient
from fedul_flwr.client_apps.fedmatch import FedMatchClient
from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.client_apps.xclp import XCLPClient
from fedul_flwr.client_apps.xclp_predict import XCLPPredictClient
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.config.methods import METHODS, find_method
from fedul_flwr.config.node_config import NodeConfig
from fedul_flwr.data.safe_files import map_version, read_arrays
from fedul_flwr.data.sources import source_directory
from fedul_flwr.data.split import build_split, client_files
from fedul_flwr.data.types import Content
from fedul_flwr.federated.client import Client
from fedul_flwr.federated.client_data import ClientState
from fedul_flwr.federated.members import CheckAnswer
from fedul_flwr.federated.messages import ARRAYS, BASE_ROUND, HELPERS, WEIGHT
from fedul_flwr.federated.nodes import ClientRef, DataShape, setup_content
from fedul_flwr.learning.local import dump_arrays
from fedul_flwr.learning.parts import decompose, flatten
from fedul_flwr.models import build_model
from fedul_flwr.propagation.phases import LABEL, LAST, PREVIOUS_LABELS, ROWS
from fedul_flwr.propagation.server import LabelPropagation
from tests.support.digits_settings import settings_of_client
from tests.support.given_labels_method import GIVEN_METHOD, GivenClient

COUNTS = [100, 80, 70, 50]
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(4), COUNTS))
SHAPE = DataShape((6, 6, 1), ("a", "b", "c", "d"))
CLIENTS = (0, 1)
FIRST_STAGE, SECOND_STAGE = 1, 11
"""Rounds that belong to them by default."""


def clients_of(*kinds: str) -> dict[str, type[Client]]:
    """Classes of the clients that train on data of some kinds, by the names of their methods."""
    return {
        name: method.client_class
        for name, method in METHODS.items()
        if method.data in kinds and method.asks_clients and method.updates
    }


UNLABELED = clients_of("unlabeled-sets")
PARTLY_LABELED = {GIVEN_METHOD: GivenClient, **clients_of("partly-labeled", "fully-labeled")}
AUDITED = UNLABELED | PARTLY_LABELED

opened: list[str] | None = None
"""Where the audit hook below puts the paths of opened files, if anybody listens."""


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and opened is not None and isinstance(arguments[0], str):
        opened.append(arguments[0])


sys.addaudithook(_listen)  # hooks cannot be removed


@contextmanager
def files_opened() -> Iterator[list[str]]:
    """Every file that this process opens within, whatever opens it from Python."""
    global opened
    read_arrays.cache_clear()
    map_version.cache_clear()
    found: list[str] = []
    opened = found
    try:
        yield found
    finally:
        opened = None


def names_below(paths: list[str], root: Path) -> set[str]:
    return {Path(path).name for path in paths if Path(path).is_relative_to(root)}


@dataclasses.dataclass
class Federation:
    """Two simulated clients on disk; a client is built anew for every message, as on a device."""

    root: Path
    source: Path
    split: Path
    settings: Any
    states: list[RecordDict]

    @property
    def written(self) -> Path:
        """Where clients write labels: not below ``root``."""
        return self.root.with_name(f"{self.root.name}-written")

    def client(self, number: int = 0, kind: type[Client] = FedULClient) -> Client:
        labels = str(self.written / f"{number}.csv")
        node = NodeConfig(partition_id=number, num_partitions=2, labels=labels)
        return kind(self.settings, node, ClientState(self.states[number]))

    def prepare(self, number: int = 0, **options: Any) -> Content:
        data = find_method(self.settings.method).data
        files = client_files(self.source, self.split, data)
        told = setup_content(self.settings, SHAPE, files)
        return self.client(number, **options).on_phase("setup", told)

    def weights(self) -> Arrays:
        return dict(dump_arrays(build_model("mlp", SHAPE.input_shape, 4, seed=1)))

    def parameters(self) -> NDArrays:
        return list(self.weights().values())

    def fit(
        self,
        number: int = 0,
        server_round: int = FIRST_STAGE,
        received: Mapping[str, Arrays] | None = None,
        **options: Any,
    ) -> tuple[NDArrays, int, dict[str, Any]]:
        told = {"server-round": server_round, TEACHER_STEPS: 0, CLASS_SHARES: [0.25] * 4}
        payload = self.client(number, **options).train(self.weights(), told, received)
        return list(payload.pop(ARRAYS).values()), payload.pop(WEIGHT), payload

    def propagate(self, kind: type[Client], sent: list[Any]) -> dict[int, Arrays]:
        """XCLP's phases between both clients: rows for each; answers are added to ``sent``."""

        def ask(
            phase: str, contents: Mapping[ClientRef, Content], check: CheckAnswer
        ) -> dict[ClientRef, Content]:
            answers = {
                member: self.client(member.partition_id, kind).on_phase(phase, content)
                for member, content in contents.items()
            }
            for member, answer in answers.items():
                check(member, answer)
                sent.extend([answer.values, *(answer.arrays[key] for key in sorted(answer.arrays))])
            return answers

        options = self.settings[XCLPSettings]
        num_classes = len(self.client(0, kind).setup["class-names"])
        propagation = LabelPropagation(
            ask,
            lambda _: None,
            options,
            dict.fromkeys(CLIENTS, 10**6),
            SECOND_STAGE,
            bytes(32),
            num_classes,
        )
        left, joint = propagation.join(
            [ClientRef(number, number) for number in CLIENTS], self.weights()
        )
        rows = propagation.sum_labels(left, joint)
        return {member.partition_id: content.arrays for member, content in rows.items()}

    def rounds(self, kind: type[Client]) -> list[Any]:
        """Everything both clients send in a round of each stage, as plain arrays and values."""
        sent: list[Any] = [self.prepare(number, kind=kind).values for number in CLIENTS]
        rows: dict[int, Arrays] = {}
        if kind in (XCLPClient, XCLPPredictClient):
            rows = self.propagate(kind, sent)
        if kind is XCLPPredictClient:
            for number in CLIENTS:  # it labels points, and trains nothing
                told = Content(rows[number], {PREVIOUS_LABELS: True, LAST: True})
                self.client(number, kind).on_phase(LABEL, told)
            return sent + [file.read_text() for file in sorted(self.written.glob("*.csv"))]
        if kind is FedSemClient:
            for number in CLIENTS:
                told = Content(self.weights(), {"after-round": SECOND_STAGE - 1})
                sent.append(self.client(number, kind).on_phase(fedsem.LABEL, told).values)
        if kind is FedMatchClient:
            return sent + self.differences(kind)
        for server_round in (FIRST_STAGE, SECOND_STAGE):
            for number in CLIENTS:
                received = {ROWS: rows[number]} if rows else {}
                received |= {TEACHER: self.weights()} if kind is FedSiamClient else {}
                arrays, examples, metrics = self.fit(number, server_round, received, kind=kind)
                sent += [examples, metrics, *(array.copy() for array in arrays)]
        return sent

    def differences(self, kind: type[Client]) -> list[Any]:
        """What both clients of FedMatch send after everything, and after what they hold already."""
        parts, sent = decompose(self.weights(), (), 0.2), []
        nothing: dict[str, Arrays] = {part: {} for part in parts}
        for server_round, since, received in (
            (FIRST_STAGE, 0, parts),
            (SECOND_STAGE, FIRST_STAGE, nothing),
        ):
            for number in CLIENTS:
                told = {"server-round": server_round, BASE_ROUND: since, HELPERS: 0}
                payload = self.client(number, kind).train({}, told, received)
                records = {k: payload.pop(k) for k in [*payload] if isinstance(payload[k], dict)}
                sent += [payload, *flatten(records).values()]
        return sent

    def change_given(self) -> None:
        """Turn every label that clients are given into another."""
        with np.load(self.split / "given.npz") as archive:
            arrays = dict(archive)
        arrays["labels"] = np.where(arrays["labels"] >= 0, 3 - arrays["labels"], -1)
        np.savez(self.split / "given.npz", **arrays)
        read_arrays.cache_clear()


Build = Callable[..., Federation]


def build_federation(root: Path, **options: Any) -> Federation:
    """A federation below ``root``, where its cache lies too."""
    data, rng = root / "data", np.random.default_rng(1)
    data.mkdir(parents=True)
    # Images that show their class, so that learning with labels differs from without.
    images = rng.integers(0, 60, (300, 6, 6)) + 60 * LABELS[:, None, None]
    np.savez(data / "train.npz", images=images.astype(np.uint8), labels=LABELS)
    np.savez(data / "test.npz", images=images[:8].astype(np.uint8), labels=LABELS[:8])
    values = {"model": "mlp", "partition": "majority", "fedul.num-sets": 5, "local-epochs": 1}
    values |= {"fedul.overlap": "disjoint", "precision": "float32"}
    if options.get("method") in {*PARTLY_LABELED, "closed-form-labels"}:  # it has no sets
        values = {key: value for key, value in values.items() if "." not in key}
    if options.get("method") in ("xclp", "xclp-predict"):  # what is sent can be compared
        values["xclp.secure"] = "plaintext"
    settings = settings_of_client({**values, **options})
    source = source_directory(str(data))
    split = build_split(source, 2, settings)
    built = Federation(root, source, split.directory, settings, [RecordDict(), RecordDict()])
    built.written.mkdir()
    return built
