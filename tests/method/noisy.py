"""Each client adds noise to the weights that it sends."""

import numpy as np

from fedul_flwr.method import ARRAYS, ClientStage, ServerStage, Stage


class AtClient(ClientStage):
    def after(self, payload):
        rng = np.random.default_rng(self.client.node.partition_id)
        noisy = {name: a + 1e-3 * rng.normal(size=a.shape) for name, a in payload[ARRAYS].items()}
        return {**payload, ARRAYS: {name: a.astype("float32") for name, a in noisy.items()}}


class AtServer(ServerStage):
    def about(self):
        return {"noise": 1e-3}


class Noisy(Stage):
    server, client = AtServer, AtClient
