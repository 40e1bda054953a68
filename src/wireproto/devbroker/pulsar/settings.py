"""Holds the broker's configuration: each value is the default of 4.2.4, except for the failover delay and transactions.

Tests change it by ``broker.call("pulsar", "configure", keep_alive=0.2)``. It must not be changed from another thread.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Settings:
    """The configuration of one broker.

    Attributes:
        keep_alive: seconds after which a silent client gets a PING, and after as many again is disconnected (keepAliveIntervalSeconds); 0:
            never.
        batch_index_acks: whether a part of a batch can be acknowledged (acknowledgmentAtBatchIndexLevelEnabled; off before 4.1).
        failover_ring: whether the active consumer of a partition is chosen by a hash ring, too (activeConsumerFailoverConsistentHashing).
        failover_delay: seconds between the choice of another active consumer and the first message to it
            (activeConsumerFailoverDelayTimeMillis; a broker's default is 1 s, which tests would wait for at each start).
        transactions: whether there are any (transactionCoordinatorEnabled; a broker's default is false).
    """

    keep_alive: float = 30.0
    batch_index_acks: bool = True
    failover_ring: bool = False
    failover_delay: float = 0.0
    transactions: bool = True
