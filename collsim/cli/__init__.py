"""The command line: parse, call, print. Each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

__all__ = ["main", "parser"]


class _Parser(argparse.ArgumentParser):
    """Reports a wrong call in one line."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"collsim: error: {' '.join(message.split())}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from collsim import __version__

    top = _Parser(
        prog="collsim",
        description="Simulate collective communication: prove the data, time the links, compare with theory.",
        epilog="example:\n  collsim run topologies/dgx-h100.yaml all_reduce -b 8 -e 1G -f 2 --algorithm ring",
    )
    top.add_argument("--version", action="version", version=f"collsim {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    _add_run(commands)
    topology = commands.add_parser("topology", help="look at a machine")
    what = topology.add_subparsers(dest="what", metavar="WHAT", required=True, parser_class=_Parser)
    show = what.add_parser("show", help="print what a topology file describes")
    show.add_argument("topology", metavar="TOPOLOGY", help="topology file (YAML)")
    listing = commands.add_parser("algorithms", help="list the algorithms of each operation")
    listing.add_argument("--json", action="store_true", help="print JSON")
    check = commands.add_parser(
        "check",
        help="prove an algorithm for many numbers of ranks",
        epilog="example:\n  collsim check my_variant.py:bidirectional_ring --ranks 2-17",
    )
    check.add_argument("function", metavar="FILE.py:FUNCTION", help="your function, or OPERATION:NAME of a shipped one")
    check.add_argument("--ranks", default="2-9", metavar="N,N-N", help="numbers of ranks (default 2-9)")
    return top


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="simulate a collective over a range of sizes",
        epilog="example:\n  collsim run topologies/ring8.yaml reduce_scatter -b 1M -e 1M --algorithm ring --plot timeline.png",
    )
    run.add_argument("topology", metavar="TOPOLOGY", help="topology file (YAML)")
    run.add_argument("operation", metavar="OPERATION", help="all_reduce, all_gather, broadcast, ...")
    run.add_argument("-a", "--algorithm", default="ring", metavar="NAME", help="name, or FILE.py:FUNCTION (default ring)")
    run.add_argument("-b", "--minbytes", metavar="SIZE", help="smallest size; K, M, G are binary (default 32M)")
    run.add_argument("-e", "--maxbytes", metavar="SIZE", help="largest size (default 32M, or the smallest)")
    run.add_argument("-f", "--stepfactor", default="2", metavar="N", help="factor between sizes (default 2)")
    run.add_argument("-d", "--datatype", default="float", metavar="TYPE", help="element type (default float)")
    run.add_argument("-r", "--root", default="0", metavar="RANK", help="root of broadcast, reduce, ... (default 0)")
    run.add_argument(
        "-p", "--parameter", action="append", default=[], metavar="NAME=VALUE",
        help="parameter of the algorithm, for instance -p channels=2 -p slices=8 -p order=0,2,1,3",
    )  # fmt: skip
    run.add_argument(
        "--network", default="cut_through", metavar="MODEL",
        help="alpha_beta, store_and_forward, cut_through (default) or fluid",
    )  # fmt: skip
    run.add_argument("--engine", default="auto", metavar="NAME", help="auto (default) or reference")
    run.add_argument("--synchronous", action="store_true", help="a barrier between steps, as textbooks assume")
    run.add_argument("--no-check", action="store_true", help="skip the proof and the check of the data")
    run.add_argument("--json", action="store_true", help="print JSON instead of the table")
    run.add_argument("--plot", metavar="FILE", help="draw the timeline of the largest size (png, svg, pdf)")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for a failed proof, 2 for anything wrong in the call."""
    arguments = parser().parse_args(argv)
    from collsim.errors import CollsimError, ProofError

    try:
        if arguments.command == "run":
            from collsim.cli.run import run

            return run(arguments)
        if arguments.command == "check":
            from collsim.cli.check import check

            return check(arguments)
        from collsim.cli.show import show_algorithms, show_topology

        return show_topology(arguments) if arguments.command == "topology" else show_algorithms(arguments)
    except ProofError as error:
        print(f"collsim: proof failed: {_one_line(error)}", file=sys.stderr)
        return 1
    except CollsimError as error:
        print(f"collsim: error: {_one_line(error)}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # the reader of our output (head, less) has gone; nothing is wrong with us
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
