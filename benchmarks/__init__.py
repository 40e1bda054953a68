"""What wireproto costs, beside its peers: the same work on the same bytes, in one run, taking turns. `python -m benchmarks --help`."""
