"""What was measured: values by row and system with what went on beside them, and the tables."""

import json
import os
import statistics

UNITS = {"s": "{:.3f} s", "ms": "{:.2f} ms", "x": "{:.2f} x", "/s": "{:.0f} /s", "MiB": "{:.1f} MiB"}


class Row:
    """One line of the comparison. `references` are the systems that ratios are told to."""

    def __init__(self, name, unit="s", references=("native",)):
        self.name, self.unit, self.references = name, unit, references


class Results:
    def __init__(self):
        self.rows = {}      # name: Row, in the order in which they first came
        self.values = {}    # name: {system: [value of each round]}
        self.beside = {}    # name: {system: [(server's CPU seconds, load)]}
        self.cannot = {}    # name: {system: why}
        self.peaks = {}     # system: KiB
        self.highest_load = 0.0

    def add(self, row, system, value, server_cpu=None):
        load = os.getloadavg()[0]
        self.highest_load = max(self.highest_load, load)
        self.rows.setdefault(row.name, row)
        self.values.setdefault(row.name, {}).setdefault(system, []).append(value)
        self.beside.setdefault(row.name, {}).setdefault(system, []).append((server_cpu, load))

    def add_cannot(self, what, system, why):
        self.cannot.setdefault(what, {}).setdefault(system, why)

    def add_peak(self, system, kib):
        self.peaks[system] = max(self.peaks.get(system, 0), kib)

    def median(self, row, system):
        values = self.values[row].get(system)
        return statistics.median(values) if values else None

    def ratios(self, name, system):
        parts = []
        for reference in (*self.rows[name].references, "runfs-before"):
            base = self.median(name, reference)
            if base and reference != system:
                parts.append(f"{self.median(name, system) / base:.2f} x {reference}")
        return ", ".join(parts)

    def lines(self, name):
        """(system, median, span, ratios, server's CPU, load) of one row."""
        shown = UNITS[self.rows[name].unit]
        for system, values in self.values[name].items():
            cpu = [c for c, _ in self.beside[name][system] if c is not None]
            yield (system, shown.format(statistics.median(values)),
                   f"{shown.format(min(values))} - {shown.format(max(values))}", self.ratios(name, system),
                   f"{statistics.median(cpu):.2f} s" if cpu else "",
                   f"{statistics.median(load for _, load in self.beside[name][system]):.1f}")

    def print(self):
        for name in self.rows:
            print(f"\n{name}")
            print(f"  {'':<20} {'median':>12}  {'min - max':<27} {'ratios':<34} {'server CPU':>10} {'load':>5}")
            for system, median, span, ratios, cpu, load in self.lines(name):
                print(f"  {system:<20} {median:>12}  {span:<27} {ratios:<34} {cpu:>10} {load:>5}")
        for what, systems in self.cannot.items():
            for system, why in systems.items():
                print(f"\n{what}: {system} can't: {why}", end="")
        print("\n\npeak memory over all rows")
        for system, kib in self.peaks.items():
            print(f"  {system:<20} {kib / 1024:8.1f} MiB")

    def markdown(self):
        """The medians of all systems as one table, for docs/performance.md: with the span of runfs, its
        ratios, the server's CPU seconds under it and the load."""
        systems = list(dict.fromkeys(s for row in self.values.values() for s in row))
        others = [s for s in systems if s != "runfs"]
        out = ["| row | runfs | min - max | ratio | server CPU, load | " + " | ".join(others) + " |",
               "|---" * (5 + len(others)) + "|"]
        for name in self.rows:
            lines = {line[0]: line[1:] for line in self.lines(name)}
            middle, span, ratios, cpu, load = lines.get("runfs", ("-", "", "", "", ""))
            cells = [lines[s][0] if s in lines else "-" for s in others]
            out.append("| " + " | ".join([name, middle, span, ratios, f"{cpu or '-'}, {load}", *cells]) + " |")
        return "\n".join(out) + "\n"

    def save(self, path):
        with open(path, "w") as f:
            json.dump({"rows": {r.name: [r.unit, r.references] for r in self.rows.values()},
                       "values": self.values, "beside": self.beside, "cannot": self.cannot, "peak_kib": self.peaks,
                       "highest_load": self.highest_load}, f, indent=1)


def processor_seconds(pids):
    """Of processes that live; what ended meanwhile is left out."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_memory(pids):
    """KiB, the highest of all of them together."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status") as f:
                total += sum(int(line.split()[1]) for line in f if line.startswith("VmHWM"))
        except OSError:
            continue
    return total


def moved_bytes(pid):
    """(read, written) by this process with any system call, sockets included."""
    with open(f"/proc/{pid}/io") as f:
        fields = dict(line.split(": ") for line in f)
    return int(fields["rchar"]), int(fields["wchar"])
