"""The client of XCLP for prediction: writes labels of its own points to a local file."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedul_flwr import learning
from fedul_flwr import method as kit
from fedul_flwr.client_apps.xclp import propagation_answers, propagation_client
from fedul_flwr.config.method_settings import XCLPSettings
from fedul_flwr.data.class_labels import labels_from_scores
from fedul_flwr.data.local_data import own_data, refuse_unwritable
from fedul_flwr.data.run_files.label_files import (
    LEFT_OUT,
    LOCAL_LP,
    NETWORK,
    XCLP,
    file_name,
    write_labels,
)
from fedul_flwr.data.types import Propagated
from fedul_flwr.federated.client_data import file_of
from fedul_flwr.federated.messages import SETUP
from fedul_flwr.propagation.client import (
    PHASES,
    GraphPoints,
    PropagationClient,
    end_propagation,
    end_propagations,
)
from fedul_flwr.propagation.phases import (
    COMPARE,
    COSINES,
    END,
    LABEL,
    LAST,
    NAMES,
    PREVIOUS_LABELS,
    UNOPENED,
)
from fedul_flwr.propagation.solve import nearest_names
from fedul_flwr.secure.rowsums import WrongSumError
from fedul_flwr.strategies.xclp_predict import XCLPPredictSettings


class XCLPPredictClient(kit.SemiSupervisedClient):
    """Takes part in one propagation and writes labels and confidences of its unlabeled points."""

    extra_phases = frozenset({*PHASES, LABEL})
    _propagated = propagation_answers("once")
    answers = {
        **_propagated,
        COMPARE: {
            **_propagated[COMPARE],
            **kit.all_of(
                "which names of classes each point is nearest to, and how near",
                *(NAMES, COSINES),
                when=lambda settings: settings[XCLPPredictSettings].nearest_names > 0,
            ),
        },
        SETUP: {"num-compared": kit.Part.count(says="how many points are in the graph")},
        LABEL: {
            UNOPENED: kit.Part(says="whether it could not open its part of the sum", often="once")
        },
    }

    @cached_property
    def graph(self) -> GraphPoints:
        """Its points in the graph: all, or all except unlabeled training points."""
        examples = self.data.examples
        positions = np.arange(len(examples.points))
        if not self.settings[XCLPPredictSettings].use_unlabeled:
            positions = np.delete(positions, examples.unlabeled)
        return GraphPoints(examples, positions, self.data.num_classes)

    @property
    def propagation(self) -> PropagationClient:
        """Its part in a propagation."""
        return propagation_client(self, self.graph, self._features, name_edges=self._name_edges)

    def register(self) -> dict[str, kit.Value]:
        """Numbers of points and labels, and of points in the graph."""
        return {**super().register(), "num-compared": len(self.graph.positions)}

    def check(self) -> None:
        """Raise an error if its labels could not be written."""
        refuse_unwritable(self._file(XCLP).parent, "The file of labels (node config labels)")

    def on_phase(self, name: str, content: kit.Content) -> kit.Content:
        """Answer phases of the propagation, and the last one: write the propagated labels."""
        if name == END:
            end_propagations(self.state)
            return kit.Content()
        if name in PHASES:
            return self.propagation.on_phase(name, content)
        if name == LABEL:
            try:
                propagated = self.propagation.open(content.arrays)
            except WrongSumError:  # somebody's part of the sum: there are no labels to write
                end_propagations(self.state)
                return kit.Content(values={UNOPENED: True})
            self._write(XCLP if content.values[PREVIOUS_LABELS] else LEFT_OUT, propagated)
            if content.values[LAST]:
                end_propagations(self.state)
            return kit.Content(values={UNOPENED: False})
        if name == SETUP:  # a client that starts again leaves a running propagation
            end_propagation(self.state)
        return super().on_phase(name, content)

    def _features(self, weights: kit.Arrays, number: int) -> NDArray[np.float32]:
        """Features from pixels or from the model, and labels from the client's own points alone."""
        del number

        options, graph = self.settings[XCLPPredictSettings], self.graph
        inputs = self.data.examples.inputs
        if options.features == "pixels":
            features = learning.pixel_features(inputs, graph.rows)
        else:
            learning.load_arrays(self.model, weights)
            plan = learning.local_plan(self.settings)
            features, logits = learning.features_and_logits(self.model, inputs, graph.rows, plan)
            self._write(NETWORK, learning.network_labels(logits))
        scores = graph.own_scores(features, self.settings[XCLPSettings])
        self._write(LOCAL_LP, labels_from_scores(scores))
        return features

    def _name_edges(self, features: NDArray[Any]) -> kit.Arrays:
        """The names that each point is nearest to; the model's rows are the names' vectors."""
        options = self.settings[XCLPPredictSettings]
        if not options.nearest_names:
            return {}
        names = next(self.model.parameters()).detach().cpu().numpy()
        nearest, cosines = nearest_names(features, names, options.nearest_names)
        return {NAMES: nearest, COSINES: cosines}

    def _write(self, source: str, propagated: Propagated) -> None:
        """Write labels by ``source`` for the unlabeled points in the graph, or for all."""
        examples, graph = self.data.examples, self.graph
        unlabeled = np.flatnonzero((graph.labels == kit.UNLABELED) | (source == LEFT_OUT))
        # In the order of the data set.
        unlabeled = unlabeled[np.argsort(graph.rows[unlabeled], kind="stable")]
        names = examples.names or [str(row) for row in examples.points]
        with own_data():
            write_labels(
                self._file(source),
                [names[point] for point in graph.positions[unlabeled]],
                Propagated(propagated.labels[unlabeled], propagated.confidence[unlabeled]),
                self.data.class_names,
            )

    def _file(self, source: str) -> Path:
        """File for labels: the node config's ``labels``, or next to the data or the results."""
        name = file_name(source)
        if self.node.labels:
            chosen = Path(self.node.labels).expanduser()
            return chosen.with_name(f"{chosen.stem}{name.removeprefix('labels')}")
        return file_of(self.node, self.state, name)
