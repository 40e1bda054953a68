"""The engine round `_net`: names to addresses, connections, TLS, retry, pools, options. Knows no protocol."""
