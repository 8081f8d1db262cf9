"""Names of the records and values that keep FedMatch's clients and server in sync.

Weights are sent as sparse differences from the arrays of the last exchange. The server keeps a copy
of each client's arrays. Its message names the round of that exchange. A client without those arrays
(its state or its last reply was lost) reports so, skips the round and gets whole arrays in the next
one.
"""

from __future__ import annotations

HELD = "held"
"""Name under which both ends store the arrays of their last exchange."""
HELPERS = "helpers"
"""Record of the helpers' psi, as differences from the psi that is sent, and their number."""
BASE_ROUND = "since"
"""Round of the exchange that differences start from, 0 for none; stored with the arrays."""
STALE = "out-of-step"
"""Whether a client lacks the arrays that the server's differences start from."""
