"""Results for programs: JSON and YAML of the same values, and which of them a person asked for. Pure."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import yaml

FORMATS = ("json", "yaml", "wide")


def add_output_option(parser: argparse.ArgumentParser, formats: Sequence[str] = FORMATS) -> None:
    """kubectl's `-o`."""
    parser.add_argument("-o", "--output", choices=formats, metavar="|".join(formats), help="how to print the result")


def rendered(value: Any, form: str) -> str:
    """The value as `json` or `yaml`."""
    if form == "yaml":
        return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)
    return json.dumps(value, indent=2, ensure_ascii=False)
