"""Each client adds noise to the weights that it sends."""

import numpy as np

from fedul_flwr.method import ARRAYS, ClientStage, ServerStage, Stage


class AtClient(ClientStage):
    def after(self, payload):
        rng = np.random.default_rng(self.client.node.partition_id)
        noisy = {name: a + 1e-3 * rng.normal(size=a.shape) for name, a in payload[ARRAYS].items()}
        return {**payload, ARRAYS: {name: a.astype("float32") for name, a in noisy.items()}}


class AtServer(ServerStage):
    def end(self, model):
        self.state["rounds"] = self.state.get("rounds", 0) + 1
        return model

    def about(self):
        return {"noise": 1e-3, "rounds_with_noise": int(self.state["rounds"])}


class Noisy(Stage):
    server, client = AtServer, AtClient
