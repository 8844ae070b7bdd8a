"""Writes the tables of docs/configuration.md from the settings of the programs; --check only compares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from decoder_worker.config import DecoderWorkerConfig
from gateway.config import GatewayConfig
from prm_worker.config import PrmWorkerConfig
from thoughtbeam.runtime.common_settings import StoreSettings
from thoughtbeam.runtime.config import default_of
from thoughtbeam.runtime.settings import Setting, settings_of

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
START, END = "<!-- the tables: written by scripts/gen_configuration.py -->", "<!-- end of the tables -->"


def tables() -> str:
    """All settings, a section for each place that they can stand in."""
    sections = [
        ("common", "all programs; the two of Redis: gateway and decoder worker", StoreSettings),
        ("gateway", "`python -m gateway`", GatewayConfig),
        ("decoder_worker", "`python -m decoder_worker`", DecoderWorkerConfig),
        ("prm_worker", "`python -m prm_worker`", PrmWorkerConfig),
    ]
    parts = []
    for section, owner, kind in sections:
        own = [one for one in settings_of(kind).values() if one.about.common == (section == "common")]
        parts.append(f"### [{section}]: {owner}\n\n{table(own)}")
    return "\n".join(parts)


def table(settings: Iterable[Setting]) -> str:
    lines = ["| setting | is | allowed | default |", "|---|---|---|---|"]
    for one in settings:
        default = default_of(one).removeprefix("default: ")
        shown = default if default in ("none", "must be given") else f"`{default}`"
        lines.append(f"| `{one.name}` | {one.about.help} | {one.allowed} | {shown} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when the page is not current"
    )
    check = parser.parse_args().check
    page = PAGE.read_text()
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        sys.exit(f"{PAGE.name} has no marks around its tables")
    current = f"{before}{START}\n\n{tables()}\n{END}{after}"
    if check and page != current:
        sys.exit(f"{PAGE.name} is not current: run python scripts/gen_configuration.py")
    if not check:
        PAGE.write_text(current)
    return 0


if __name__ == "__main__":
    sys.exit(main())
