"""Starts one Kafka broker for all tests of a session. Without one they are skipped, loudly; in CI they fail."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tools.kafka_broker import BrokerUnavailable, KafkaBroker

USERS = {"ann": "an-open-secret"}


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), users=USERS)
    try:
        broker.start()
    except BrokerUnavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"NO KAFKA BROKER, SO KAFKA IS NOT TESTED: {error}")
    yield broker
    broker.stop()
