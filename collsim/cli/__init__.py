"""The command line: parse, call, print. Each command imports what it needs when it runs."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence

from collsim.cli.arguments import parser
from collsim.errors import CollsimError, ProofError

__all__ = ["main", "parser"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 for a failed proof, 2 for anything wrong in the call."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # names come from files; a terminal that cannot show one must not end the run
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            if not (sys.argv[1:] if argv is None else argv):
                print(parser().format_help().rstrip(), file=sys.stderr)
                return 2
            return _command(parser().parse_args(argv))
        finally:
            if sys.stdout is not None:  # started with it closed
                sys.stdout.flush()  # here, where it can still be told what is wrong with it; --help comes by as well
    except ProofError as error:
        return _say(f"collsim: proof failed: {error}", 1)
    except CollsimError as error:
        return _say(f"collsim: error: {error}", 2)
    except BrokenPipeError:
        _drop_output()  # the reader of our output (head, less) has gone; nothing is wrong with us
        return 0
    except OSError as error:
        _drop_output()
        return _say(f"collsim: error: {error.filename or 'output'}: {error.strerror or error}", 2)
    except KeyboardInterrupt:
        return _say("collsim: interrupted", 130)


def _command(arguments: argparse.Namespace) -> int:
    if arguments.command == "run":
        from collsim.cli.run import run

        return run(arguments)
    if arguments.command == "compare":
        from collsim.cli.compare import compare

        return compare(arguments)
    if arguments.command == "bound":
        from collsim.cli.bound import bound

        return bound(arguments)
    if arguments.command == "explain":
        from collsim.cli.explain import explain

        return explain(arguments)
    if arguments.command == "report":
        from collsim.cli.report import report

        return report(arguments)
    if arguments.command == "check":
        from collsim.cli.check import check

        return check(arguments)
    if arguments.command == "convert":
        from collsim.cli.convert import convert

        return convert(arguments)
    if arguments.command == "predict":
        from collsim.cli.predict import predict

        return predict(arguments)
    from collsim.cli.show import list_topologies, show_algorithms, show_topology

    if arguments.command == "topology":
        return show_topology(arguments) if arguments.what == "show" else list_topologies()
    return show_algorithms(arguments)


def _say(text: str, code: int) -> int:
    # one line, and words that are not absurdly long, whatever was given
    print(re.sub(r"(\S{200})\S+", r"\1...", " ".join(text.split())), file=sys.stderr)
    return code


def _drop_output() -> None:
    """Send what is still buffered nowhere, or the interpreter would complain about it when it ends."""
    if sys.stdout is None:
        return
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
