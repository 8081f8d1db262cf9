"""How FedMatch's clients and server stay in step, by the names that both know.

Weights travel as sparse differences from what the receiver holds since their last exchange. The
server keeps, for every client it has seen, the very arrays that the client keeps. Its message names
the round of that exchange; a client that does not hold those arrays (its device lost its memory, or
its last reply was lost) says so, is left out of the round and gets everything in the next one.
"""

from __future__ import annotations

HELD = "held"
"""Under which either end keeps what both hold after an exchange."""
HELPERS = "helpers"
"""Record of the helpers' psi, as differences from the psi that is sent, and their number."""
BASE_ROUND = "since"
"""Round of the exchange that differences start from, 0 for none; kept with the arrays, too."""
STALE = "out-of-step"
"""Whether a client does not hold what the server takes it to hold."""
