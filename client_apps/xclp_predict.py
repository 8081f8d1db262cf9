"""The client of XCLP for prediction: writes labels of its own points to a local file."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from client_apps.xclp import XCLPClient
from fedul_flwr.config.run_config import RunConfig
from fedul_flwr.config.semi import XCLPPredictSettings
from fedul_flwr.data.content import Content, Value
from fedul_flwr.data.local_files import own_data
from fedul_flwr.data.types import UNLABELED, Arrays, Ints, Propagated
from fedul_flwr.errors import OwnDataError
from fedul_flwr.federated.disclosure import PREPARE, TRAIN, Sent, without
from fedul_flwr.propagation.phases import LABEL, LAST, OWN_LABELS
from fedul_flwr.results.label_files import write_labels
from fedul_flwr.results.label_names import LEFT_OUT, NETWORK, PERCLIENT_LP, XCLP, file_name


class XCLPPredictClient(XCLPClient):
    """Takes part in one propagation and writes labels and confidences of its unlabeled points."""

    propagates = "once"

    @property
    def options(self) -> XCLPPredictSettings:
        """Settings in table ``xclp-predict``."""
        return self.settings[XCLPPredictSettings]

    @cached_property
    def shown(self) -> Ints:
        """All points, or all except unlabeled training points."""
        if self.options.use_unlabeled:
            return np.arange(len(self.data.points))
        return np.flatnonzero((self.data.labels != UNLABELED) | self.data.new)

    def features(self) -> NDArray[np.float32]:
        """Features from pixels or from the model; with ``compare`` also writes labels for that."""
        from fedul_flwr.learning.features import features_and_logits, pixel_features
        from fedul_flwr.learning.local_plan import local_plan
        from fedul_flwr.learning.pseudo_labels import network_labels

        data, points = self.data, self.data.points[self.shown]
        if self.options.features == "pixels":
            features = pixel_features(data.images, points)
        else:
            plan = local_plan(self.settings)
            features, logits = features_and_logits(self.model, data.images, points, plan)
            if self.options.compare:
                self._write(NETWORK, network_labels(logits))
        if self.options.compare:
            self._write(PERCLIENT_LP, self.own_propagation(features))
        return features

    def introduce(self) -> dict[str, Value]:
        """Inherited values, and the number of points in the graph."""
        return {**super().introduce(), "num-compared": len(self.shown)}

    @classmethod
    def sends(cls, settings: RunConfig) -> list[Sent]:
        """XCLP's entries without those of training, and the number of compared points."""
        compared = Sent(PREPARE, ("num-compared",), "how many points are in the graph")
        return [*without(TRAIN, super().sends(settings)), compared]

    def update(self) -> dict[str, Arrays]:
        """Empty: nothing is trained."""
        return {}

    def judge(self) -> None:
        """Raise an error if its labels could not be written."""
        folder = self._file(XCLP).parent
        if not os.access(folder, os.W_OK):
            raise OwnDataError(
                f"Labels cannot be written to {folder}: it must be a folder that this user can "
                "write to; labels in the node config names another file.",
                "settings",
            )

    def step(self, name: str, content: Content) -> Content:
        """Answer XCLP's phases, and the last one: write the propagated labels."""
        if name != LABEL:
            return super().step(name, content)
        found = self.open(content.arrays)
        self._write(XCLP if content.values[OWN_LABELS] else LEFT_OUT, found)
        if content.values[LAST]:
            self.end_propagation()
        return Content()

    def _write(self, source: str, found: Propagated) -> None:
        """Write labels by ``source`` for the unlabeled points in :attr:`shown`, or for all."""
        asked = np.flatnonzero((self.given == UNLABELED) | (source == LEFT_OUT))
        # In the order of the data set.
        asked = asked[np.argsort(self.data.points[self.shown[asked]], kind="stable")]
        points = self.shown[asked]
        names = self.data.names or [str(row) for row in self.data.points]
        with own_data():
            write_labels(
                self._file(source),
                [names[point] for point in points],
                Propagated(found.labels[asked], found.confidence[asked]),
                list(self.federation["class-names"]),
            )

    def _file(self, source: str) -> Path:
        """File for labels: the node config's ``labels``, or next to the data or the results."""
        name = file_name(source)
        if self.node.labels:
            chosen = Path(self.node.labels).expanduser()
            return chosen.with_name(f"{chosen.stem}{name.removeprefix('labels')}")
        if self.state.directory is not None:
            self.state.directory.mkdir(parents=True, exist_ok=True)
            return self.state.directory / name
        folder = Path(self.node.data).expanduser().resolve()
        return folder.with_name(f"{folder.name}-{name}")
