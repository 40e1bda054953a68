"""Names what to use here in place of the parameters of kazoo's KazooClient.

A user who comes from it and gives such a name gets its entry in the error, and docs/zookeeper.md lists them.
"""

from __future__ import annotations

from typing import Final

_RETRIES = "no option needed: a lost connection is made again while the session lasts; each call has a timeout"

NAMES: Final = {
    "hosts": "give the servers in the URL: zookeeper://host:2181,host:2181/path",
    "default_acl": "use acl",
    "auth_data": "use user and password for digest",
    "randomize_hosts": "use shuffle",
    "connection_retry": _RETRIES,
    "command_retry": _RETRIES,
    "use_ssl": "use the URL zookeeper+tls://…",
    "ca": "use tls_ca_file",
    "certfile": "use tls_cert_file",
    "keyfile": "use tls_key_file",
    "keyfile_password": "use tls_key_password",
    "verify_certs": "use tls_verify",
    "check_hostname": "use tls_verify_host",
}
