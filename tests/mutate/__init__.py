"""Faults put into the client half one at a time, to see whether the tests notice: `make mutate`. docs/testing.md tells how to read it."""
