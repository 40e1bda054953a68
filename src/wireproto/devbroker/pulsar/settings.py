"""What a broker's configuration says, as far as this one has it: each as 4.2.4 has it out of the box, but for the failover delay and
transactions.

What it is: values that a test changes by ``broker.call("pulsar", "configure", keep_alive=0.2)``. Must not: be changed from another thread.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Settings:
    """One broker's.

    Attributes:
        keep_alive: seconds after which a silent client is asked, and after as many again cut off (keepAliveIntervalSeconds); 0: never.
        batch_index_acks: whether a part of a batch can be acknowledged (acknowledgmentAtBatchIndexLevelEnabled; off before 4.1).
        failover_ring: whether the active consumer of a partition is found by a hash ring, too (activeConsumerFailoverConsistentHashing).
        failover_delay: seconds between the choice of another active consumer and the first message to it
            (activeConsumerFailoverDelayTimeMillis; a broker's own is 1 s, which tests would wait for at each start).
        transactions: whether there are any (transactionCoordinatorEnabled; a broker's own is false).
    """

    keep_alive: float = 30.0
    batch_index_acks: bool = True
    failover_ring: bool = False
    failover_delay: float = 0.0
    transactions: bool = True
