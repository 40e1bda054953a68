"""What becomes of a fault at each step of a client's life: docs/faults.md, by `python -m steps`."""
