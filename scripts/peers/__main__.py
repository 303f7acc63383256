"""./dev bench peers: Gapless and other servers in turns on the same prompts, and a table of what came out."""
import argparse
import pathlib
import shlex
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # fetch_model

import fetch_model
import machine
import registry
import table
from cells import make_cells
from measure import holding, measure
from peer import Tools
from processes import Failure, say

ROOT = pathlib.Path(__file__).resolve().parents[2]


def words(text):
    return [word for word in text.split(",") if word]


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev bench peers", description="Compares Gapless with other servers on this machine: the same prompts, in "
                                     "turns. The peers are fetched and built below the cache folder at the first run, which takes long.")
    parser.add_argument("--models", type=words, default=["smollm2"], metavar="LIST", help="smollm2, gemma3 or both (default smollm2)")
    parser.add_argument("--peers", type=words, default=list(registry.NAMES), metavar="LIST", help=f"of {','.join(registry.NAMES)} (default all)")
    parser.add_argument("--streams", type=lambda text: [int(word) for word in words(text)], default=[1, 8, 32], metavar="LIST",
                        help="requests at the same time (default 1,8,32)")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="how often each is measured (default 2); the table has medians")
    parser.add_argument("--tries", type=int, default=2, metavar="N",
                        help="measure again, up to N times, while other programs keep the machine busy (default 2)")
    parser.add_argument("--quick", action="store_true", help="half as many requests")
    parser.add_argument("--gapless-flags", type=shlex.split, default=[], metavar="FLAGS", help="more flags for gapless serve")
    parser.add_argument("--lock", type=pathlib.Path, metavar="FILE", help="hold this file's lock while something is measured; other jobs may take it too")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the report here (default: print it)")
    parser.add_argument("--gapless", type=pathlib.Path, default=ROOT / "build/release/gapless", help=argparse.SUPPRESS)
    parser.add_argument("--cache", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for given, known, flag in ((options.models, fetch_model.MODELS, "--models"), (options.peers, registry.NAMES, "--peers")):
        for name in given:
            if name not in known:
                parser.error(f"{flag}: '{name}' is none of {', '.join(known)}")
    if not options.streams or min(options.streams) < 1 or min(options.rounds, options.tries) < 1:
        parser.error("--streams, --rounds and --tries must be at least 1")
    return options


def prepare(results, tools, model, path):
    """What cannot be had here is left out, with the reason."""
    for peer in results.peers:
        try:
            peer.prepare(tools, model, path)
        except Exception as error:  # whatever happens to one peer, the others are measured
            give_up(results, peer, error)


def give_up(results, peer, error):
    if not isinstance(error, Failure):
        traceback.print_exception(error)
    results.reasons[peer] = str(error) or type(error).__name__
    say(f"{peer.name}, {peer.weights}: left out: {results.reasons[peer]}")


def run_rounds(results, tools, options, logs):
    for number in range(options.rounds):
        for cell in results.cells:
            for peer in results.peers:
                if peer not in results.reasons:
                    measure_one(results, tools, peer, cell, number, options.tries, logs)


def measure_one(results, tools, peer, cell, number, tries, logs):
    label = f"{peer.name}, {peer.weights}"
    try:
        folder = logs / f"{results.model}-{cell.streams}x{cell.prompt}-{number}-{label.replace(', ', '-').replace(' ', '_')}"
        figures = measure(peer, cell, tools, folder, tries)
    except Exception as error:
        results.figures[peer, cell].append(None)
        if number == 0 and not results.measured(peer):
            give_up(results, peer, error)
        else:
            results.failures.append(f"{label}, {cell.name}, round {number + 1}: {error}")
            say(results.failures[-1])
        return
    results.figures[peer, cell].append(figures)
    say(f"round {number + 1}, {cell.name}: {label}: {figures['output_tok_s']:.1f} tok/s, TTFT {figures['ttft_ms']['p50']:.0f} ms"
        f" (others {figures['other_cores']:.2f} cores)")


def heading(options, tools, commands, state):
    lines = ["## Gapless and other servers", "",
             f"`./dev bench peers {shlex.join(options.given)}`, {time.strftime('%Y-%m-%d %H:%M')}. {machine.describe()}.", ""]
    lines += [f"- {line}" for line in state]
    lines += ["- Figures compare only within one run: a server's are medians of rounds in which all were measured in turns."]
    lines += ["", "Commands (load: `gapless bench serve`, the same for every server; a peer in process makes the same requests itself):", ""]
    return lines + [f"    {command}" for command in commands] + [""]


def shown_command(peer, cell):
    settings = [f"{name}={value}" for name, value in peer.environment.items()]
    return shlex.join([*settings, *(str(part) for part in peer.command(cell, 8080))]) + (f"   # {peer.version}" if peer.version else "")


def main():
    given = sys.argv[1:]
    options = parse(given)
    hidden = given.index("--cache") if "--cache" in given else len(given)
    options.given = given[:hidden] + given[hidden + 2:]
    tools = Tools(options.gapless, options.cache / "peers", options.lock, machine.physical_cores())
    state, reports, commands = [], [], []
    for model in options.models:
        path = fetch_model.fetch(model, options.cache)
        results = table.Results(model, registry.make_peers(options.peers, options.gapless_flags), make_cells(options.streams, options.quick))
        prepare(results, tools, model, path)
        with holding(tools.lock):
            state += [f"before {model}: {line}" for line in machine.measured_lines(tools.gapless, path)]
        run_rounds(results, tools, options, tools.cache / "logs")
        with holding(tools.lock):
            state += [f"after {model}: {line}" for line in machine.measured_lines(tools.gapless, path)]
        for peer in results.peers:
            if results.measured(peer):
                commands.append(shown_command(peer, results.cells[0]))
        reports.append(table.report(results))
        text = "\n".join(heading(options, tools, commands, state) + reports)
        if options.out:
            options.out.write_text(text)
    if options.out:
        say(f"wrote {options.out}")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
