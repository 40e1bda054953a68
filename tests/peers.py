"""Other people's codecs, imported without the warnings they cause."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka.codec as kafka_codec
    import kafka.record as kafka_record

__all__ = ["kafka_codec", "kafka_record"]
