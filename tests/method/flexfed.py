"""FlexFed: FixMatch with a threshold for each class that the federation learns."""

import torch
from torch.nn import functional

from fedul_flwr.method import MATCHING, Client, Method, Part, Settings, Strategy, Task


class FlexFedSettings(Settings):
    table = "flexfed"
    threshold: float = 0.95
    """Highest threshold of a class."""


class FlexFed(Strategy):
    state = {"confident": Part("classes")}

    def client_config(self):
        confident = self.state["confident"]
        return {"share": confident / confident.max()} if confident.any() else {}

    def after_round(self, reports):
        self.state["confident"] = reports["confident"]


class FlexFedClient(Client):
    reports = {
        "confident": Part("classes", at_least=0, combine="sum", says="confident points by class")
    }

    def task(self, round):
        share = round.config.get("share", torch.ones(self.num_classes, device=round.device))
        threshold, confident = self.options.threshold * share, torch.zeros_like(share)

        def loss(network, batch):
            top, target = network.predict(self.weak(batch.unlabeled)).max(dim=1)
            sure = top >= threshold[target]
            confident.index_add_(0, target, sure.to(share))
            with network.frozen_statistics():
                logits = network(self.strong(batch.unlabeled))
            each = functional.cross_entropy(logits, target, reduction="none")
            supervised = functional.cross_entropy(network(batch.labeled), batch.labels)
            return supervised + (each * sure).mean()

        return Task(self.data.labeled_and_unlabeled(round), loss, {"confident": confident})


TABLES = (*MATCHING, FlexFedSettings)
METHOD = Method("flexfed", FlexFed, FlexFedClient, TABLES, "partly-labeled", line=__doc__)
