"""Java's names of TLS and SASL, as Spark jobs have them, against a broker that asks for both."""

from __future__ import annotations

import pytest

import wireproto
from brokers.kafka import Kafka
from wireproto.errors import AuthError
from wireproto.spark.kafka_options import client_config

MODULES = "org.apache.kafka.common.security"
LOGINS = {
    "PLAIN": f'{MODULES}.plain.PlainLoginModule required username="admin" password="admin-secret";',
    "SCRAM-SHA-256": f'{MODULES}.scram.ScramLoginModule required username="admin" password="admin-secret";',
    "SCRAM-SHA-512": f"{MODULES}.scram.ScramLoginModule required username=admin password=admin-secret;",
    "OAUTHBEARER": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";',
}


def config(broker: Kafka, mechanism: str, login: str, listener: str) -> dict[str, str]:
    found = {"security.protocol": listener, "sasl.mechanism": mechanism, "sasl.jaas.config": login}
    if listener == "SASL_SSL":
        found |= {"ssl.truststore.location": str(broker.certificates.ca), "ssl.truststore.type": "PEM"}
    return found


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("mechanism", LOGINS)
@pytest.mark.parametrize("broker", ["kafka-4.3.1-secure"], indirect=True)
def test_a_jaas_string_opens_the_door(broker: Kafka, mechanism: str, listener: str) -> None:
    hosts = broker.urls["sasl_tls" if listener == "SASL_SSL" else "sasl"].partition("://")[2].partition("?")[0]
    with wireproto.connect(f"kafka://{hosts}", **client_config(config(broker, mechanism, LOGINS[mechanism], listener))) as client:
        assert isinstance(client.admin().list_topics(timeout=20.0), list)


@pytest.mark.parametrize("broker", ["kafka-4.3.1-secure"], indirect=True)
def test_a_wrong_password_is_refused(broker: Kafka) -> None:
    hosts = broker.urls["sasl"].partition("://")[2].partition("?")[0]
    login = LOGINS["PLAIN"].replace("admin-secret", "wrong")
    settings = client_config(config(broker, "PLAIN", login, "SASL_PLAINTEXT"))
    with wireproto.connect(f"kafka://{hosts}", **settings) as client, pytest.raises(AuthError):
        client.admin().list_topics(timeout=20.0)
