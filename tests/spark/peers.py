"""Warnings of the peers in a Spark test (pandas, py4j, PySpark, clients that leave sockets open) are not ours to mend; ours stay errors."""

import pytest

QUIET = pytest.mark.filterwarnings(
    "ignore",
    "error::Warning:wireproto",
    "error::Warning:pyspark_wireproto",
    "error:(?s).*/src/wireproto/:pytest.PytestUnraisableExceptionWarning",  # nobody caught it, and its traceback has our code
)
