"""`make campaign`: all roles of a protocol at work on real brokers that are hurt on purpose, and a ledger that says what was kept.

The pieces, one idea a file:

    plan.py                     a seed becomes rounds: which fault, where, for how long
    site.py, *_site.py          a protocol's cluster behind one proxy a node; its topics, roles, faults of its own, and what its logs hold
    faults.py, clocks.py        how each fault is put in and taken out again; wall clocks that jump
    work.py, crew.py            processes of roles (producing.py reading.py grouping.py queueing.py treeing.py), each with its journal.py
    streaming.py                a process with a Spark stream
    ledger.py                   what the journals tell, sans-IO · judge_*.py: one promise each, from the ledger to findings
    run.py, report.py           rounds, the last reading, the verdict; table, time line and JSON
"""
