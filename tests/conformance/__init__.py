"""The definition of the common interface, as tests over every protocol and broker. features.py says what each protocol can carry."""
