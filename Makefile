# The verbs that people and CI call. `make` prepares .venv: extensions built in place, development tools, PySpark.
# Needs CPython 3.11 to 3.13 with headers and venv, a C compiler, make, a JDK 17+; Maven for real brokers, valgrind for the
# gates. No target needs root, but for the bare system of `make nightly`.

PYTHON ?= python3
BROKERS ?= dev
PARTS ?=
PIECES ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export CC  # `cc`, whatever compiler that is here, and not the one that Python itself was built with; make CC=clang picks

SOURCES := $(shell find src/wireproto -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -path '*_parts/*.[ch]') setup.py

.PHONY: all demo test check table seconds faults unit wire conformance bench fuzz mutate coverage soak campaign spark-versions constraints gen lint nightly wheel clean
all: $(VENV)/ready

# Says every 20 s that the rest of a line goes on, and ends with its shell; its sleep holds no pipe of ours open.
GOING_ON = (while sleep 20 >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do echo "make: … goes on, $$(date +%T)"; done) & trap "kill $$! 2>/dev/null" EXIT

# Dependencies: anew when pyproject.toml changes, in the versions that constraints.txt pins.
$(VENV)/deps: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "CPython 3.11 to 3.13 is needed; set PYTHON=")'
	@echo "make: the environment $(VENV): some minutes, once; 1.3 GB"
	@test -x $(BIN)/python || { echo "make: 1 of 4, an empty environment"; $(PYTHON) -m venv $(VENV); }
	@echo "make: 2 of 4, pip and what builds extensions"
	@$(BIN)/python -m pip install -q -c constraints.txt --upgrade 'pip>=25.1' 'setuptools>=77' wheel 'cython>=3.3,<4'
	@echo "make: 3 of 4, what constraints.txt names (PySpark is the largest), and beside it wireproto's own extensions, built from C: takes some minutes"
	@$(BIN)/python tests/constraints.py --users > $(VENV)/users.txt
	@$(GOING_ON); $(BIN)/python -m pip install -q -c constraints.txt --no-deps --no-build-isolation -e . & building=$$!; \
	  $(BIN)/python -m pip install -c constraints.txt --group dev --group demo -r $(VENV)/users.txt || { kill $$building; exit 1; }; \
	  wait $$building
	@echo "make: 4 of 4, PySpark's Python files to byte code"
	@$(BIN)/python tests/quick_spark.py
	@touch $@

# Extensions: in place, anew when a source is newer than they are, which it is not when they came with the dependencies.
$(VENV)/ready: $(VENV)/deps $(SOURCES)
	@for part in _codec _net; do \
	  built=$$(ls -t src/wireproto/$$part.*.so 2>/dev/null | head -n 1); \
	  if [ -z "$$built" ] || [ -n "$$(find $(SOURCES) -newer "$$built")" ]; then \
	    echo "make: wireproto's extensions, built from C: takes some minutes"; $(GOING_ON); \
	    $(BIN)/python setup.py -q build_ext --inplace || exit 1; break; \
	  fi; \
	done
	@touch $@

demo: $(VENV)/ready
	@PYTHONPATH=tests:examples $(BIN)/python -m flights --brokers $(BROKERS)

# Everything, in 82 minutes at most; `make test PARTS="lint unit wire fuzz conformance real integration spark campaign bench"` picks, TABLE=1 writes
# docs/conformance.md, ARGS="--seed 20261122" repeats what chance chose, ARGS="--minutes 90" waits longer.
test:
	@$(PYTHON) tests/run.py $(if $(PARTS),--parts $(PARTS)) $(if $(TABLE),--table) $(ARGS)

# docs/conformance.md from the last whole run of `make test` here.
table:
	@PYTHONPATH=tests $(PYTHON) -m brokers.table .cache/ran.json docs/conformance.md

# The seconds that each test file took in that run, as what later ones are held against.
seconds:
	@$(PYTHON) tests/budget.py .cache/ran.json

# What becomes of a fault at each step of a client's life, measured.
faults: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python -m steps

# Lint, and the unit and wire tests of what changed since the last commit on main: two minutes at most; make check ARGS="--since HEAD~3".
check: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python tests/check.py $(ARGS)

unit wire conformance lint:
	@$(PYTHON) tests/run.py --parts $@ $(ARGS)

bench: $(VENV)/ready
	@PYTHONPATH=src $(BIN)/python -m benchmarks $(ARGS)

gen: $(VENV)/ready
	@$(BIN)/python -m proto.gen

# Mutated inputs for everything that reads strangers' bytes, under the sanitizers: a minute a format; make fuzz ARGS="--runs 10000000".
fuzz: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python -m fuzz $(ARGS)

# Faults put into the client half one at a time, to see which of them no test notices; pieces of 30 minutes that go on: make mutate ARGS="--seed 3".
mutate: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python -m mutate $(ARGS)

# Lines and branches of src/ that the tests run, part by part; goes on where it was ended: make coverage ARGS="--parts unit wire"; --write: docs/coverage.md.
coverage: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python tests/covered.py $(ARGS)

# Streaming jobs on Spark, their driver, workers and brokers killed 20 times each over a million records; make soak ARGS="--seed 7"; with
# ARGS="--exactly-once --kills 50 --seed 1" the exactly-once sinks' jobs alone, with so many kills of each in all. Then the tests that `make test`
# leaves out, since others prove the same.
soak: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python -m spark.kills $(ARGS)
	@$(PYTHON) tests/run.py --parts soak --minutes 90

# All roles of a protocol at work on real brokers that are killed, frozen, cut off; a ledger says what was kept: make campaign ARGS="kafka --minutes 10 --seed 7".
campaign: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python -m campaign $(ARGS)

# The Spark formats on PySpark 4.0 to 4.3, each in an environment of its own, and on a Spark Connect session of ours.
spark-versions: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python -m spark.versions $(ARGS)

# constraints.txt anew: what is missing or no longer fits; make constraints ARGS=--newest takes newer versions of all.
constraints:
	@$(PYTHON) tests/constraints.py $(ARGS)

# What is too long or needs more than a clone, in pieces that go on where they ended; the newest results go into .cache/nightly/results.md:
# make nightly PIECES="wheel demo"; make nightly ARGS=--stale tells what is older than the work.
nightly: $(VENV)/ready
	@PYTHONPATH=src:tests $(BIN)/python -m nightly $(PIECES) $(ARGS)

# A wheel and a source archive, tested in empty environments, in empty folders, on every CPython that is here.
wheel: $(VENV)/ready
	@$(BIN)/python tests/wheel.py

clean:
	rm -rf $(VENV) build dist demo-out bench-out src/wireproto/*.so src/wireproto/_codec.c src/wireproto/_net.c src/*.egg-info
