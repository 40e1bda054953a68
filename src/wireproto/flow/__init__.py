"""Holds what the adapters share above the engine: sending, reading ahead, limits of memory, and what roles have in common.

It uses `net` and the engine below it, and knows no protocol, opens no socket and starts no thread. A state object reads no clock: times are
given to it.
"""
