"""FedProto: clients move features to the federation's prototype of each class (Tan et al. 2022)."""

import torch
from torch.nn import functional

from fedul_flwr.method import MATCHING, Client, Method, Part, Settings, Strategy, Task


class FedProtoSettings(Settings):
    table = "fedproto"
    weight: float = 1.0
    """Weight of the distance to a point's prototype."""


class FedProto(Strategy):
    state = {"prototypes": Part(("classes", "features")), "known": Part("classes")}

    def client_config(self):
        return dict(self.state)

    def after_round(self, reports):
        counts = reports["counts"]
        mean = reports["sums"] / counts.clip(1)[:, None]
        moved = abs(mean - self.state["prototypes"]).max()
        self.record.metrics["prototype-shift"] = float(moved)
        self.state |= {"prototypes": mean, "known": (counts > 0).astype(float)}


class FedProtoClient(Client):
    reports = {
        "sums": Part(("classes", "features"), combine="sum", says="sums of features by class"),
        "counts": Part("classes", at_least=0, combine="sum", says="points of these by class"),
    }

    def task(self, round):
        known = round.config["known"]
        prototypes = round.config["prototypes"].reshape(self.num_classes, -1).float()
        sums = torch.zeros_like(prototypes, dtype=torch.float64)
        counts = torch.zeros_like(known)

        def loss(network, batch):
            features, logits = network.features_and_logits(batch.labeled)
            sums.index_add_(0, batch.labels, features.detach().double())
            counts.index_add_(0, batch.labels, torch.ones_like(batch.labels).double())
            supervised = functional.cross_entropy(logits, batch.labels)
            apart = (features - prototypes[batch.labels]).square().mean(dim=1)
            return supervised + self.options.weight * (apart * known[batch.labels]).mean()

        reports = {"sums": sums, "counts": counts}
        return Task(self.data.labeled_and_unlabeled(round), loss, reports)


TABLES = (*MATCHING, FedProtoSettings)
METHOD = Method("fedproto", FedProto, FedProtoClient, TABLES, "partly-labeled", line=__doc__)
