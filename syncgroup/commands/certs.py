"""`syncgroup certs init|add|request|sign|renew|show`: a CA and members' certificates for use without Kubernetes.

Only the words of the command line; the work is in `certs_actions`. Errors of the runtime become sentences here.
"""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from sync_runtime.identity.errors import IdentityError
from syncgroup.actions import Action, add_actions, add_json, sentences
from syncgroup.commands import certs_actions as actions
from syncgroup.errors import CommandError

NAMESPACE = "default"
MEMBER_DAYS = 365
CA_DAYS = 3650
MAX_DAYS = 36500


def configure(parser: argparse.ArgumentParser) -> None:
    """The six actions."""
    add_actions(
        parser,
        "Make, renew and inspect the keys and certificates with which members know each other.",
        (
            Action("init", "make a CA and members' folders", _init, actions.init),
            Action("add", "further members of a group that exists", _add, actions.add),
            Action(
                "request", "a key made where it is used, and a request for its certificate", _request, actions.request
            ),
            Action("sign", "the certificate for a request", _sign, actions.sign),
            Action("renew", "new certificates for members; running ones take them up", _renew, actions.renew),
            Action("show", "who is who, and until when", _show, actions.show),
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Do it; every expected failure is one sentence."""
    with sentences(IdentityError):
        try:
            return int(options.action(options, datetime.datetime.now(datetime.UTC)))
        except FileExistsError as error:
            place = error.filename2 or error.filename
            raise CommandError(f"{place} exists: nothing is overwritten unasked.") from error


def _init(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make a CA in DIR and one folder with key and certificate per member: DIR/NAME. "
        "Copy each folder to its member; DIR/ca.key stays where it is."
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    _group(parser)
    _members(parser)
    parser.add_argument("--ca-days", type=_days, default=CA_DAYS, metavar="N", help=f"life of the CA ({CA_DAYS})")
    parser.add_argument(
        "--force", action="store_true", help="replace what is there; the old CA's members are locked out"
    )
    add_json(parser)


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, metavar="DIR", help="where `init` made the CA")
    _members(parser)
    parser.add_argument("--force", action="store_true", help="replace members that are there, keys too")
    add_json(parser)


def _request(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Make a key in FOLDER, on the member's own machine, and FOLDER/tls.csr, a request for its certificate. "
        "Carry the request to whoever holds the CA; the key stays."
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    _group(parser)
    _one_member(parser)
    parser.add_argument("--force", action="store_true", help="replace a key that is there")
    add_json(parser)


def _sign(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Sign a request if it is for the member that you name, and put its certificate into DIR/NAME. "
        "Carry tls.crt and ca.crt back to the member's folder."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where `init` made the CA")
    parser.add_argument("request", type=Path, metavar="REQUEST", help="the member's tls.csr")
    _one_member(parser)
    parser.add_argument("--days", type=_days, default=MEMBER_DAYS, metavar="N", help=f"life ({MEMBER_DAYS})")
    parser.add_argument("--force", action="store_true", help="replace a certificate that is there")
    add_json(parser)


def _renew(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Sign new certificates for the members in DIR. Keys stay, so that what a trainer has signed stays valid, "
        "unless --new-key is given."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where `init` made the CA")
    parser.add_argument("names", nargs="*", metavar="NAME", help="members to renew (default: all)")
    parser.add_argument("--days", type=_days, default=MEMBER_DAYS, metavar="N", help=f"life ({MEMBER_DAYS})")
    parser.add_argument("--due", action="store_true", help="only those that have lived two thirds of their life")
    parser.add_argument("--new-key", action="store_true", help="replace the keys too")
    add_json(parser)


def _show(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print who is who, and until when; exit code 1 if something cannot be used."
    parser.add_argument("folder", type=Path, metavar="DIR", help="where `init` made the CA, or one member's folder")
    add_json(parser)


def _group(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", required=True, metavar="NAME", help="the group's name")
    parser.add_argument("--namespace", default=NAMESPACE, metavar="NAME", help=f"as in group.toml ({NAMESPACE})")
    parser.add_argument("--group-uid", metavar="UID", help="as in group.toml (default: made from namespace and name)")


def _one_member(parser: argparse.ArgumentParser) -> None:
    who = parser.add_mutually_exclusive_group(required=True)
    for role in ("trainer", "member"):
        who.add_argument(f"--{role}", type=_place, action="append", default=[], metavar="NAME@REGION")


def _members(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trainer", type=_place, action="append", default=[], metavar="NAME@REGION", help="may be given again"
    )
    parser.add_argument(
        "--member",
        type=_place,
        action="append",
        default=[],
        metavar="NAME@REGION",
        help="a rollout; may be given again",
    )
    parser.add_argument("--days", type=_days, default=MEMBER_DAYS, metavar="N", help=f"life of members ({MEMBER_DAYS})")


def _place(text: str) -> tuple[str, str]:
    name, at, region = text.partition("@")
    if not (name and at and region):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME@REGION, such as worker-0@eu-west")
    return name, region


def _days(text: str) -> int:
    try:
        days = int(text)
    except ValueError:
        days = 0
    if not 1 <= days <= MAX_DAYS:
        raise argparse.ArgumentTypeError(f"must be a number of days from 1 to {MAX_DAYS}")
    return days
