"""Types of the compiled codec core."""

from typing_extensions import Buffer

# checksum
def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32(data: Buffer, value: int = 0) -> int: ...
