"""Changes settings of a running broker (code 25), by their names in broker.conf; all but these are refused.

slaveReadEnable                 slaves may be read from: a slave of 5.5.0 answers no pull without it
accessMessageInMemoryMaxRatio   per cent of the memory that a reader may be behind before it is sent to a slave; no reader here is ever
                                that far, so that only 0 sends readers there, and it sends all that find something;
                                    they also get 8 messages and 64 kB at most, as from the disk
brokerRole                      ASYNC_MASTER or SYNC_MASTER, of a master
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .reply import Reply, refuse

if TYPE_CHECKING:
    from .node import Node
    from .reply import Request

SYSTEM_ERROR = 1
ROLES = {"ASYNC_MASTER": False, "SYNC_MASTER": True}


async def update_config(request: Request) -> Reply:
    """Serve code 25."""
    lines = [line.strip() for line in request.body.decode().splitlines() if line.strip() and not line.startswith("#")]
    wanted = {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}
    wrong = [name for name, value in wanted.items() if not _change(request.broker, name, value, dry=True)]
    if wrong:
        return refuse(SYSTEM_ERROR, f"the dev broker does not follow {', '.join(wrong)}")
    for name, value in wanted.items():
        _change(request.broker, name, value, dry=False)
    return Reply()


def _change(broker: Node, name: str, value: str, *, dry: bool) -> bool:
    """Return whether the setting can be changed; it is changed unless `dry`."""
    if name == "slaveReadEnable" and value in ("true", "false"):
        broker.reads = broker.reads if dry else value == "true"
    elif name == "accessMessageInMemoryMaxRatio" and value.isdecimal():
        broker.behind = broker.behind if dry else int(value)
    elif name == "brokerRole" and value in ROLES and not broker.slave:
        broker.synchronous = broker.synchronous if dry else ROLES[value]
    else:
        return False
    return True
