# The engine's loop.
