"""What the command line takes: one function a command, and how a wrong call is told."""

from __future__ import annotations

import argparse
import re
from typing import Any, NoReturn

from collsim.errors import did_you_mean

__all__ = ["parser"]

EXIT_CODES = "exit codes: 0 all is well; 1 a schedule is wrong; 2 the call is wrong (one line on stderr says why)"


NCCL_TESTS = {
    "-g": "; the topology says how many GPUs there are",
    "-t": "; the topology says how many GPUs there are",
    "-n": "; a simulation gives the same time every time, so nothing is repeated",
    "-w": "; a simulation gives the same time every time, so nothing is warmed up",
    "-i": "; sizes go by a factor: -f",
    "-c": "; results are checked unless --no-check is given",
    "-o": "; the only reduction is sum",
    "-J": "; collsim run has it, here --json prints JSON",
}
"""What to say of flags of nccl-tests that mean nothing here."""
NCCL_TESTS_LONG = {
    "--ngpus": NCCL_TESTS["-g"],
    "--nthreads": NCCL_TESTS["-t"],
    "--iters": NCCL_TESTS["-n"],
    "--warmup_iters": NCCL_TESTS["-w"],
    "--stepbytes": NCCL_TESTS["-i"],
    "--check": NCCL_TESTS["-c"],
    "--op": NCCL_TESTS["-o"],
    "--output_file": NCCL_TESTS["-J"],
}


class _Parser(argparse.ArgumentParser):
    """Reports a wrong call in one line."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # the parser of a command refuses what it does not know by itself: it knows the flags that come near
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hints = (self._hint(word.partition("=")[0]) for word in unknown if word.startswith("-"))
            self.error(f"unknown: {' '.join(unknown)}{next(filter(None, hints), '')}")
        return found, unknown

    def _hint(self, flag: str) -> str:
        if re.match(r"-\w", flag):  # one letter is too little for a guess
            return NCCL_TESTS.get(flag[:2], "")
        return NCCL_TESTS_LONG.get(flag) or did_you_mean(flag, list(self._option_string_actions))

    def error(self, message: str) -> NoReturn:
        choice = re.match(r"argument (\w+): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if choice:
            names = re.findall(r"[\w-]+", choice[3])
            message = (
                f"{choice[1]}: expected one of {', '.join(names)}, got {choice[2]!r}{did_you_mean(choice[2], names)}"
            )
        self.exit(2, f"collsim: error: {' '.join(message.split())}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    from collsim import __version__

    top = _Parser(
        prog="collsim",
        description="Simulate collective communication: prove the data, time the links, compare with theory.",
        epilog="examples:\n"
        "  collsim run topologies/dgx-h100.yaml all_reduce -b 8 -e 1G -f 2 --algorithm ring\n"
        "  collsim compare dgx-h100-x4 all_reduce -b 8 -e 1G\n"
        "  collsim bound dgx-h100-x4 all_gather\n"
        "  collsim explain dgx-h100-x4 all_reduce -b 64M\n"
        "  collsim report dgx-h100-x4 all_reduce -o report.html\n"
        "  collsim topology show topologies/fat-tree-16.yaml\n"
        "  collsim check my_variant.py:bidirectional_ring --ranks 2-17\n\n" + EXIT_CODES,
    )
    top.add_argument("--version", action="version", version=f"collsim {__version__}")
    commands = top.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    _add_run(commands)
    _add_compare(commands)
    _add_bound(commands)
    _add_explain(commands)
    _add_report(commands)
    topology = commands.add_parser("topology", help="look at a machine", description="Look at a machine.")
    what = topology.add_subparsers(title="commands", dest="what", metavar="WHAT", required=True, parser_class=_Parser)
    show = what.add_parser(
        "show",
        help="print what a topology file describes",
        description="Print what a topology file describes: devices, links, routes and the ring order.",
    )
    show.add_argument("topology", metavar="TOPOLOGY", help="topology file (of any tool), or a shipped machine")
    what.add_parser("list", help="list the shipped machines", description="List the machines that come with collsim.")
    listing = commands.add_parser(
        "algorithms",
        help="list the algorithms of each operation",
        description="List the algorithms of each operation and their parameters.",
    )
    listing.add_argument("--json", action="store_true", help="print {operation: [names]} as JSON")
    _add_check(commands)
    _add_convert(commands)
    _add_predict(commands)
    return top


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser(
        "predict",
        help="what NCCL would run on a cluster, and how long by its own formula",
        description="Say what NCCL would run on a cluster of known machines, size by size, and how long its own\n"
        "formula predicts that to take. No topology file is needed: a cluster is N x NODE @ K x RATE.",
        epilog="examples:\n"
        '  collsim predict "2 x dgx-h100 @ 8x400Gb" all_reduce -b 8 -e 8G -f 2\n'
        '  collsim predict "4 x p4d" all_gather --nccl 2.22\n'
        "  collsim predict dgx-h100:4 all_reduce --env NCCL_ALGO=Ring --env NCCL_NVLS_ENABLE=0\n\n" + EXIT_CODES,
    )
    predict.add_argument("cluster", metavar="CLUSTER", help='such as "2 x dgx-h100 @ 8x400Gb", dgx-a100 or "4 x p5"')
    predict.add_argument("operation", metavar="OPERATION", help="all_reduce, all_gather, reduce_scatter, ...")
    sizes = predict.add_argument_group("sizes, as in nccl-tests (K, M and G are powers of 1024)")
    sizes.add_argument("-b", "--minbytes", metavar="SIZE", help="smallest size (default 8)")
    sizes.add_argument("-e", "--maxbytes", metavar="SIZE", help="largest size (default 8G)")
    sizes.add_argument("-f", "--stepfactor", default="8", metavar="N", help="factor between sizes (default 8)")
    how = predict.add_argument_group("NCCL")
    how.add_argument("--nccl", metavar="VERSION", help="release, such as 2.22 (default: the newest known)")
    how.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE",
        help="variable of NCCL, such as NCCL_ALGO=Ring; may be given several times",
    )  # fmt: skip
    predict.add_argument("--json", action="store_true", help="print JSON instead of the table")


def _add_convert(commands: Any) -> None:
    convert = commands.add_parser(
        "convert",
        help="read the machine of another tool, or write one for it",
        description="Read a description of a machine in the format of one tool and write it in that of another. What\n"
        "a file is, its content tells; every other command reads all these formats as well.",
        epilog="reads:  collsim YAML, NCCL topology XML, nvidia-smi topo -m, InfraGraph, SimAI, ns-3, ASTRA-sim\n"
        "        network, SimGrid platform, htsim .topo, TACCL JSON, GraphML\n"
        "writes: collsim YAML (.yaml), SimGrid (.simgrid.xml), ASTRA-sim network (.astra.yml), InfraGraph\n"
        "        (.infragraph.yaml), GraphML (.graphml)\n\n"
        "examples:\n"
        "  collsim convert topo.xml machine.yaml\n"
        "  collsim convert p4d-24xl-topo.xml machine.yaml --gpu a100\n"
        "  collsim convert topo.xml four-nodes.yaml --nodes 4\n"
        "  collsim convert topologies/torus-4x4.yaml torus.simgrid.xml\n"
        "  collsim convert matrix.txt - --gpu v100\n\n" + EXIT_CODES,
    )
    convert.add_argument("input", metavar="IN", help="file to read, or a shipped machine")
    convert.add_argument("output", metavar="OUT", help="file to write; - for the screen")
    convert.add_argument("--from", dest="source", metavar="FORMAT", help="format of IN (default: by its content)")
    convert.add_argument("--to", dest="target", metavar="FORMAT", help="format of OUT (default: by its name)")
    fill = convert.add_argument_group("what a file may leave out")
    fill.add_argument("--gpu", metavar="NAME", help="the GPU: h100, a100, v100, ... (partial NCCL files, nvidia-smi)")
    fill.add_argument("--nodes", metavar="N", help="that many machines behind one network (NCCL, TACCL)")
    fill.add_argument("--size", metavar="SIZE", help="size of the message that the costs are for (TACCL; default 1M)")
    fill.add_argument("--scale", metavar="FACTOR", help="factor by which the costs are multiplied (TACCL; default 1)")
    fill.add_argument(
        "--rate", action="append", default=[], metavar="LINK=RATE",
        help="rate of the links of a name, such as pcie=24GB/s (InfraGraph); may be given several times",
    )  # fmt: skip


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="simulate a collective over a range of sizes",
        description="Simulate a collective over a range of sizes. The table has the columns of nccl-tests, then what\n"
        "theory says, by how much the simulated time is above it, the least time that any algorithm\n"
        "could take, and that bound over the time.",
        epilog="examples:\n"
        "  collsim run topologies/ring8.yaml reduce_scatter -b 1M -e 1M --algorithm ring --plot timeline.png\n"
        "  collsim run topologies/dgx-1-v100.yaml all_reduce -b 64M -e 64M -p order=0,1,2,3,4,5,6,7\n"
        "  collsim run topologies/line8.yaml broadcast --root 3 -a tree -p k=1 -p slices=64 --json\n"
        "  collsim run dgx-h100 all_reduce -b 8 -e 8G -f 2 --nccl-tests -J result.json\n\n" + EXIT_CODES,
    )
    run.add_argument("topology", metavar="TOPOLOGY", help="topology file, or a shipped machine: dgx-h100, ...")
    run.add_argument("operation", metavar="OPERATION", help="all_reduce, reduce_scatter, ... (see: collsim algorithms)")
    what = run.add_argument_group("what to run")
    _add_algorithm(what)
    _add_sizes(run)
    how = run.add_argument_group("how to run it")
    _add_network(how)
    how.add_argument("--engine", default="auto", metavar="NAME", help="auto (default), reference or compiled")
    how.add_argument("--synchronous", action="store_true", help="a barrier between steps, as textbooks assume")
    how.add_argument("--no-check", action="store_true", help="skip the proof and the check of the data")
    output = run.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print JSON instead of the table")
    output.add_argument(
        "--nccl-tests", action="store_true",
        help="print what nccl-tests prints instead of the table, for programs that read its logs",
    )  # fmt: skip
    output.add_argument("-J", "--output_file", metavar="FILE", help="write the JSON that nccl-tests writes")
    output.add_argument("--plot", metavar="FILE", help="draw the timeline of the largest size (.png, .svg or .pdf)")
    output.add_argument("--plot-rows", default="rank", metavar="ROWS", help="rows of the plot: rank (default) or link")
    output.add_argument(
        "--plot-colour", default="step", metavar="WHAT",
        help="colours of the plot: step (default), chunk, channel, kind or critical (the critical path)",
    )  # fmt: skip
    output.add_argument("--html", metavar="FILE", help="write a page that plays the largest size in a browser (.html)")
    output.add_argument(
        "--trace", metavar="FILE", help="write a trace of the largest size for Perfetto (.json or .json.gz)"
    )


def _add_algorithm(what: Any, *, several: bool = False) -> None:
    """Add what to run: its name (or names), parameters and root, and what NCCL built."""
    if several:
        names = "names or FILE.py:FUNCTION, with commas between (default ring, or the only one)"
        what.add_argument("-a", "--algorithm", metavar="NAME,...", help=names)
    else:
        name = "name, or FILE.py:FUNCTION (default ring, or the only one)"
        what.add_argument("-a", "--algorithm", metavar="NAME", help=name)
    what.add_argument(
        "-p", "--parameter", action="append", default=[], metavar="NAME=VALUE",
        help="parameter of the algorithm, such as channels=2, order=0,2,1,3 or order=[[0,1,2],[2,1,0]] for a ring a "
        "channel; may be given several times",
    )  # fmt: skip
    what.add_argument("-r", "--root", default="0", metavar="RANK", help="root of broadcast, reduce, ... (default 0)")
    if not several:
        what.add_argument(
            "--nccl-log", metavar="FILE",
            help="output of NCCL with NCCL_DEBUG=INFO: run the very rings (-a ring) or trees (-a nccl_tree) that it "
            "built",
        )  # fmt: skip


def _add_sizes(
    command: argparse.ArgumentParser, smallest: str = "32M", largest: str = "32M", factor: str = "2"
) -> None:
    sizes = command.add_argument_group("sizes, as in nccl-tests (K, M and G are powers of 1024)")
    sizes.add_argument("-b", "--minbytes", metavar="SIZE", help=f"smallest size (default {smallest})")
    sizes.add_argument("-e", "--maxbytes", metavar="SIZE", help=f"largest size (default {largest}, or the smallest)")
    sizes.add_argument(
        "-f", "--stepfactor", default=factor, metavar="N", help=f"factor between sizes (default {factor})"
    )
    sizes.add_argument("-d", "--datatype", default="float", metavar="TYPE", help="element type (default float)")


def _add_network(group: Any) -> None:
    group.add_argument(
        "--network", default="cut_through", metavar="MODEL",
        help="alpha_beta, store_and_forward, cut_through (default) or fluid",
    )  # fmt: skip


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="rank all algorithms that fit a machine, size by size",
        description="Run all algorithms of an operation that fit a machine over a range of sizes. A line of the table\n"
        "has the three fastest at a size with their time and the bound over it; then comes which one is the\n"
        "fastest from where to where, and which do not fit and why. With --measured the sizes are those of a\n"
        "log of nccl-tests, and the times that it has stand beside the simulated ones, with the errors.",
        epilog="examples:\n"
        "  collsim compare dgx-h100-x4 all_reduce -b 8 -e 1G\n"
        "  collsim compare torus-4x4 all_gather -b 1K -e 64M -f 4 --all\n"
        "  collsim compare ring8 all_reduce -b 1M -e 1M -a ring,my_variant.py:bidirectional_ring --json\n"
        "  collsim compare dgx-h100 all_reduce -b 1K -e 8G --plot curves.png\n"
        "  collsim compare dgx-h100 all_reduce --measured all_reduce_perf.log -a ring,nvls --plot curves.png\n\n"
        + EXIT_CODES,
    )
    compare.add_argument(
        "topology", metavar="TOPOLOGY", help="topology file (of any tool), or a shipped machine: dgx-h100, ..."
    )
    compare.add_argument("operation", metavar="OPERATION", help="all_reduce, ... (see: collsim algorithms)")
    what = compare.add_argument_group("what to compare")
    what.add_argument(
        "-a", "--algorithm", metavar="NAME,...", help="names or FILE.py:FUNCTION, with commas between (default: all)"
    )
    what.add_argument("-r", "--root", default="0", metavar="RANK", help="root of broadcast, reduce, ... (default 0)")
    what.add_argument(
        "--measured", metavar="LOG",
        help="what nccl-tests or rccl-tests printed or wrote (text, JSON, CSV); -b and -e narrow its sizes down",
    )  # fmt: skip
    what.add_argument("--in-place", action="store_true", help="take the times in place of the log, not out of place")
    _add_sizes(compare)
    how = compare.add_argument_group("how to run them")
    _add_network(how)
    how.add_argument("--no-check", action="store_true", help="skip the proofs")
    output = compare.add_argument_group("output")
    output.add_argument("--all", action="store_true", help="also print how much longer each of the others takes")
    output.add_argument("--json", action="store_true", help="print JSON, with all results, instead of the table")
    output.add_argument("--plot", metavar="FILE", help="draw bandwidth against size (.png, .svg or .pdf)")


def _add_bound(commands: Any) -> None:
    bound = commands.add_parser(
        "bound",
        help="print the least time that any algorithm could take",
        description="Print the least time that any algorithm of an operation could take on a machine, size by size,\n"
        "with the bus bandwidth that this allows and what binds: latency, injection (what ranks must\n"
        "send and receive through their own links) or a cut of the machine. Below: the limit for large\n"
        "messages, and the links that make it.",
        epilog="examples:\n"
        "  collsim bound dgx-h100-x4 all_gather\n"
        "  collsim bound topologies/torus-4x4.yaml all_to_all -b 1M -e 1G -f 4\n"
        "  collsim bound dgx-1-v100 broadcast --root 3 --json\n\n" + EXIT_CODES,
    )
    bound.add_argument(
        "topology", metavar="TOPOLOGY", help="topology file (of any tool), or a shipped machine: dgx-h100, ..."
    )
    bound.add_argument("operation", metavar="OPERATION", help="all_reduce, ... (see: collsim algorithms)")
    bound.add_argument("-r", "--root", default="0", metavar="RANK", help="root of broadcast, reduce, ... (default 0)")
    _add_sizes(bound, "8", "8G", "8")
    _add_network(bound)
    bound.add_argument(
        "--json", action="store_true", help="print JSON, with the links of the cut, instead of the table"
    )


def _add_explain(commands: Any) -> None:
    explain = commands.add_parser(
        "explain",
        help="say why a collective takes so long and what would help",
        description="Say why a collective takes as long as it does: what the time goes to, on which links, the\n"
        "critical path in a few lines, the busiest links, the bound and theory. Then what would help most,\n"
        "found by simulating it: links of a kind with twice the bandwidth or half the latency, faster\n"
        "devices, other parameters, other algorithms that fit the machine.",
        epilog="examples:\n"
        "  collsim explain dgx-h100-x4 all_reduce -b 64M\n"
        "  collsim explain dgx-1-v100 all_reduce -b 64M -p order=0,1,2,3,4,5,6,7\n"
        "  collsim explain topologies/fat-tree-16.yaml all_to_all -a direct -b 1M --json\n\n" + EXIT_CODES,
    )
    explain.add_argument(
        "topology", metavar="TOPOLOGY", help="topology file (of any tool), or a shipped machine: dgx-h100, ..."
    )
    explain.add_argument("operation", metavar="OPERATION", help="all_reduce, ... (see: collsim algorithms)")
    what = explain.add_argument_group("what to explain")
    _add_algorithm(what)
    what.add_argument(
        "-b", "--minbytes", metavar="SIZE",
        help="the size, as in nccl-tests (K, M and G are powers of 1024; default 32M)",
    )  # fmt: skip
    what.add_argument("-d", "--datatype", default="float", metavar="TYPE", help="element type (default float)")
    how = explain.add_argument_group("how to run it")
    _add_network(how)
    how.add_argument("--engine", default="auto", metavar="NAME", help="auto (default), reference or compiled")
    how.add_argument("--synchronous", action="store_true", help="a barrier between steps, as textbooks assume")
    how.add_argument("--no-check", action="store_true", help="skip the proof")
    how.add_argument("--records", action="store_true", help="keep records, and so a critical path, of over a million")
    how.add_argument(
        "--budget", metavar="N", help="transfers that experiments may simulate in all (default 4000000; 0: none)"
    )
    explain.add_argument("--json", action="store_true", help="print JSON, with all experiments, instead of the text")


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="write one HTML file with tables, pictures, explanation and player",
        description="Simulate a collective over a range of sizes and write one HTML file that needs no other file and\n"
        "no network: what was simulated, the table of `collsim run`, bandwidth against size with the bound\n"
        "and theory, what the time goes to, the machine and how busy its links are, the explanation, the\n"
        "step player, the bound in words, versions, and the command that makes it again.",
        epilog="examples:\n"
        "  collsim report dgx-h100-x4 all_reduce -o report.html\n"
        "  collsim report dgx-h100-x4 all_reduce -a ring,hierarchical,forest -b 1M -e 4G -f 4\n"
        "  collsim report topologies/ring8.yaml broadcast -a tree -p k=1 --figures pictures\n\n" + EXIT_CODES,
    )
    report.add_argument("topology", metavar="TOPOLOGY", help="topology file (of any tool), or a shipped machine")
    report.add_argument("operation", metavar="OPERATION", help="all_reduce, ... (see: collsim algorithms)")
    what = report.add_argument_group("what to report on")
    _add_algorithm(what, several=True)
    _add_sizes(report, "8", "1G", "8")
    how = report.add_argument_group("how to run it")
    _add_network(how)
    how.add_argument("--no-check", action="store_true", help="skip the proof and the check of the data")
    output = report.add_argument_group("output")
    output.add_argument("-o", "--output", metavar="FILE", help="the file (.html; default MACHINE-OPERATION.html)")
    output.add_argument("--figures", metavar="DIR", help="also write the pictures as files into a directory")
    output.add_argument("--figure-format", default="svg", metavar="FORMAT", help="of these: svg (default) or png")


def _add_check(commands: Any) -> None:
    check = commands.add_parser(
        "check",
        help="prove an algorithm for many numbers of ranks",
        description="Put a function that returns schedules through the battery of collsim.testing: proof,\n"
        "execution on data against NumPy, volumes, text form, and time against the lower bound.",
        epilog="examples:\n"
        "  collsim check my_variant.py:bidirectional_ring --ranks 2-17\n"
        "  collsim check all_reduce:ring --ranks 2,4,8\n\n" + EXIT_CODES,
    )
    check.add_argument("function", metavar="FILE.py:FUNCTION", help="your function, or OPERATION:NAME of a shipped one")
    check.add_argument("--ranks", default="2-9", metavar="N,N-N", help="numbers of ranks (default 2-9)")
