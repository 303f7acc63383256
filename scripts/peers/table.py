"""The report: medians over the rounds as Markdown."""
import dataclasses
import statistics

from measure import BUSY_CORES


def median_of(rounds, *keys):
    """The median over the rounds of one figure; None where no round has it."""
    values = []
    for figures in rounds:
        for key in keys:
            figures = (figures or {}).get(key)
        if figures is not None:
            values.append(figures)
    return statistics.median(values) if values else None


def shown(value, form, scale=1.0):
    return "–" if value is None else form.format(value * scale)


def rate(rounds):
    return median_of(rounds, "output_tok_s")


def ratio(ours, theirs, *keys):
    """The median over the rounds of ours / theirs: the two were measured minutes apart at most."""
    ratios = []
    for mine, other in zip(ours, theirs):
        a, b = median_of([mine], *keys), median_of([other], *keys)
        if a and b:
            ratios.append(a / b)
    return statistics.median(ratios) if ratios else None


def row(*columns):
    return "| " + " | ".join(columns) + " |"


def head(*columns):
    return [row(*columns), "|" + "---|" * len(columns)]


@dataclasses.dataclass(frozen=True)
class Column:
    """Of the summary: which figure of a measurement it has, and how it is written."""
    title: str
    keys: tuple
    form: str
    ratio_form: str = "{:.2f}"
    scale: float = 1.0


COLUMNS = {
    "rate": Column("", ("output_tok_s",), "{:.0f}"),
    "ttft": Column("TTFT p50, ", ("ttft_ms", "p50"), "{:.0f} ms", "{:.3f}"),
    "memory": Column("peak RSS, ", ("peak_bytes",), "{:.2f} GB", scale=1e-9),
}


class Results:
    """figures: (peer, cell) -> one entry per round, None where it failed; reasons: peer -> why it has no figures."""

    def __init__(self, model, peers, cells):
        self.model, self.peers, self.cells = model, peers, cells
        self.figures = {(peer, cell): [] for peer in peers for cell in cells}
        self.reasons = {}
        self.failures = []  # single measurements that failed, in words

    def ours(self, cell):
        return self.figures[self.peers[0], cell]

    def measured(self, peer):
        return any(any(self.figures[peer, cell]) for cell in self.cells)


def summary(results):
    """One row per peer, one column per cell. `Nx`: Gapless has N times as many tokens per second, as long a time, as much memory."""
    lines = head("output tok/s (Gapless over it)", "weights", *(COLUMNS[cell.shown].title + cell.name for cell in results.cells))
    for peer in results.peers:
        if results.measured(peer):
            lines.append(row(peer.name, peer.weights, *(summary_entry(results, peer, cell) for cell in results.cells)))
    return lines


def summary_entry(results, peer, cell):
    column, theirs = COLUMNS[cell.shown], results.figures[peer, cell]
    text = shown(median_of(theirs, *column.keys), column.form, column.scale)
    return text + shown_ratio(ratio(results.ours(cell), theirs, *column.keys), peer is results.peers[0], column.ratio_form)


def shown_ratio(value, is_ours, form):
    return "" if is_ours or value is None else f" ({form.format(value)}x)"


def details(results):
    lines = head("", "server", "weights", "output tok/s of each round", "TTFT p50 / p99 ms", "time between tokens p50 / p99 ms", "peak RSS",
                 "cores used", "load generator's CPU", "other programs, cores", "run delay")
    for cell in results.cells:
        for peer in results.peers:
            rounds = results.figures[peer, cell]
            if not any(rounds):
                continue
            def pair(name):
                return " / ".join(shown(median_of(rounds, name, p), "{:.1f}") for p in ("p50", "p99"))
            wall, cpu = median_of(rounds, "wall_s"), median_of(rounds, "server_cpu_s")
            lines.append(row(cell.name, peer.name, peer.weights, ", ".join(shown(rate([figures]), "{:.1f}") for figures in rounds),
                             pair("ttft_ms"), pair("itl_ms"), shown(median_of(rounds, "peak_bytes"), "{:.2f} GB", 1e-9),
                             shown(cpu / wall if wall else None, "{:.2f}"), shown(median_of(rounds, "load_cpu_s"), "{:.2f} s"),
                             shown(median_of(rounds, "other_cores"), "{:.2f}"), shown(median_of(rounds, "run_delay_share"), "{:.0f} %", 100)))
    return lines


def warnings(results):
    """What makes the figures less sure than they look."""
    found = []
    entries = [figures for rounds in results.figures.values() for figures in rounds if figures]
    for key, what in (("other_cores", "other programs used"), ("steal_cores", "the host took")):
        worst = max((figures[key] for figures in entries), default=0)
        busy = sum(figures[key] > BUSY_CORES for figures in entries)
        if busy:
            found.append(f"The machine was busy: {what} more than {BUSY_CORES} of a core in {busy} of {len(entries)} measurements, {worst:.2f} at most.")
    for (peer, cell), rounds in results.figures.items():
        for figures in rounds:
            wanted = cell.requests * cell.prompt
            if figures and abs(figures["prompt_tokens"] / wanted - 1) > 0.05:
                found.append(f"{peer.name} {peer.weights}, {cell.name}: {figures['prompt_tokens']} prompt tokens instead of about {wanted}.")
                break
    return found


def report(results):
    lines = [f"### {results.model}", "", *summary(results), ""]
    if results.reasons:
        lines += [f"- Not measured: {peer.name}, {peer.weights}: {reason}" for peer, reason in results.reasons.items()] + [""]
    lines += [f"- Failed: {line}" for line in results.failures]
    lines += [f"- {line}" for line in warnings(results)]
    lines += ["", *details(results), ""]
    return "\n".join(lines)
