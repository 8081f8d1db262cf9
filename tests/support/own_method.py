"""A method as a user would write one."""

from fedul_flwr.client_apps.fedul import FedULClient
from fedul_flwr.config.base import Settings
from fedul_flwr.config.method_settings import FedULSettings
from fedul_flwr.config.methods import Method
from fedul_flwr.federated.policies import SetAdmission
from fedul_flwr.strategies.fedul import FedULStrategy

SEEN: list[float] = []


class MirrorSettings(Settings):
    table = "mirror"
    factor: float = 1.0
    """What it is."""


class MirrorClients(SetAdmission):
    def changed(self, answers: object) -> None:
        SEEN.append(self.settings[MirrorSettings].factor)


class Mirror(FedULStrategy):
    policy_class = MirrorClients  # type: ignore[assignment]


class MirrorClient(FedULClient):
    pass


MIRROR = Method(
    name="mirror",
    strategy="tests.support.own_method:Mirror",
    client="tests.support.own_method:MirrorClient",
    settings=(FedULSettings, MirrorSettings),
)
