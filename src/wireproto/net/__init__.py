"""Resolves names, opens and keeps connections, does TLS, retries and reads options, round the engine `_net`. Knows no protocol."""
