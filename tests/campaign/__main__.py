"""`make campaign ARGS="kafka --minutes 10 --seed 7"`: one protocol's roles on real brokers that are hurt; 0 only when every promise held.

    python -m campaign PROTOCOL [--minutes 10] [--seed N] [--short] [--only kill freeze …] [--out FOLDER] [--keep]

The seed decides which faults come, on which node, for how long; it is printed, and `--seed` repeats them. Journals, the table, the time
line (campaign.svg) and campaign.json stay in the folder, .cache/campaign/PROTOCOL-SEED if none is named.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import cast

from . import kept, report
from .faults import FAULTS
from .run import Campaign
from .site import Site

SITES = {"kafka": "KafkaSite", "rocketmq": "RocketSite", "zookeeper": "ZooKeeperSite", "pulsar": "PulsarSite"}
SHORT = 1.0  # minutes
FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "campaign"


def site_of(protocol: str) -> Site:
    return cast("Site", getattr(import_module(f".{protocol}_site", __package__), SITES[protocol])())


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make campaign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", choices=sorted(SITES))
    parser.add_argument("--minutes", type=float, default=None, help="of faults (default: 10; with --short 1)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--short", action="store_true", help="a minute, with shorter faults")
    parser.add_argument("--only", nargs="+", default=[], metavar="FAULT", help=f"of {', '.join(FAULTS)}, and those of the protocol")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--keep", action="store_true", help="write the result into tests/campaign/results.txt, for docs/conformance.md")
    given = parser.parse_args(arguments)
    folder: Path = given.out or FOLDER / f"{given.protocol}-{given.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    minutes = given.minutes if given.minutes is not None else SHORT if given.short else 10.0
    print(f"seed {given.seed}, {minutes:g} minutes of faults; journals are in {folder}", flush=True)

    def say(text: str) -> None:
        print(text, flush=True)

    outcome = Campaign(site_of(given.protocol), folder, given.seed, minutes, say, short=given.short, only=given.only).run()
    report.write(outcome, folder)
    if given.keep:
        kept.keep(report.row(outcome, minutes))
    print("\n".join(report.lines(outcome)), flush=True)
    if outcome.faults:
        print(f'{len(outcome.faults)} findings; again: make campaign ARGS="{given.protocol} --minutes {minutes:g} --seed {given.seed}"')
    return 1 if outcome.faults else 0


if __name__ == "__main__":
    sys.exit(main())
