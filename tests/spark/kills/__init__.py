"""Streaming jobs that are killed: of what was written nothing may be missing, nothing may change places, and Pulsar repeats nothing.

Kafka's jobs start again with other options than before, since whoever mends a job does: micro-batches of another size, or other tasks.

    records.py     what goes in, what must come out, and who judges it
    ends.py        the logs at both ends, through clients that are not ours
    job.py         the job: a process of its own, started again from its checkpoint
    processes.py   what belongs to a job, and how to kill it
    harness.py     kills at points chosen by seed and seen by progress; restarts until all is through
    jobs.py        which jobs, on which brokers
    __main__.py    `make soak`: many kills over many records

A kill is SIGKILL: of the driver (its Python and its JVM; the workers are left to find out), of a Python worker within a task, of a broker,
whose data stays. Points are numbers of records seen in the target, so a seed gives the same points again; where in a micro-batch the
processes stand then is the machine's affair.
"""
