"""What the four adapters share above the engine: sending, reading ahead, bounds of memory, what roles have in common.

May assume: `net` and the engine below it. Must not: know a protocol, open a socket, or start a thread. A state
object reads no clock: times are handed in.
"""
