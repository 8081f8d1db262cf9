"""The server reads how many points all clients have together, and nobody's own number."""

from fedul_flwr.method import ClientStage, ServerStage, Stage, Sum

POINTS = "points-together"


class AtClient(ClientStage):
    def part(self, of, content):
        return [len(self.client.data.examples.points), 0.5] if of == POINTS else None


class AtServer(ServerStage):
    def ready(self, round):
        if "points" not in self.state:
            clients = self.strategy.registry.clients
            sums, _ = self.strategy.sums.collect(round.grid, POINTS, clients, 2)
            self.state |= {"points": sums[0], "halves": sums[1]}

    def about(self):
        return {name: float(value) for name, value in self.state.items()}


class Summed(Stage):
    server, client = AtServer, AtClient

    @classmethod
    def sums(cls, settings):
        return {POINTS: Sum.of("how many points it has", "once", once=True)}
