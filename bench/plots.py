"""plots: tables in docs/results, ways to draw them, and a page of figures (figures.py).

Ours is coloured. Theirs is black: a diamond for a number, a dashed line for a level, a hatched band
for a range. The same CSV files give the same bytes. matplotlib is taken from Python, or installed
under build/; without it the page is skipped, with a message.
Tests: tests/unit/tools/test_plots.py."""
import contextlib
import csv
import glob
import importlib.util
import math
import os
import subprocess
import sys
import textwrap
from typing import Callable, NamedTuple

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#999933")  # Okabe
THEIRS = "#000000"
COLUMNS, WIDTH, HEIGHT = 5, 4.4, 3.5  # inches of a figure
DPI = 90
TITLE = 58  # characters of a line
VENV = "venv-plot"

# Table: the file that the pages of docs/results name, where `bench/run reproduce` has none.
NAMED = {"impress": "impress.csv", "cake": "cake.csv", "cache": "dual.csv",
         "overhead": "overhead.csv", "retention": "accuracy-retention.csv",
         "presets": "replay-presets.csv", "squad": "accuracy-smollm2-squad.csv",
         "recall": "accuracy-smollm2-recall_text.csv", "recall_ids": "accuracy-opt-recall.csv",
         "sets": "accuracy-examples.csv", "quality-variant": "quality-variant.csv"}


class Tables:
    """The CSV files of a folder. `used`: those that were read since it was cleared."""

    def __init__(self, folder, quick):
        self.folder, self.quick, self.used = folder, quick, set()

    def path(self, name):
        """The table's file: of this run, else the named one, else of a quick run; or None."""
        files = [f"reproduce-quick-{name}.csv"]
        if not self.quick:
            files = [f"reproduce-{name}.csv", NAMED.get(name, ""), *files]
        paths = [os.path.join(self.folder, file) for file in files if file]
        return next((path for path in paths if os.path.exists(path)), None)

    @contextlib.contextmanager
    def of_quick_runs(self):
        self.quick = True
        try:
            yield
        finally:
            self.quick = False

    def rows(self, name, **wanted):
        """The rows whose columns have these values."""
        path = self.path(name)
        if path is None:
            return []
        self.used.add(os.path.basename(path))
        with open(path, newline="", encoding="utf8") as file:
            return [row for row in csv.DictReader(file)
                    if all(row.get(key) == value for key, value in wanted.items())]

    def means(self, name):
        """{(of, figure): mean} of a table of means."""
        return {(row["of"], row["figure"]): float(row["mean"]) for row in self.rows(name)
                if "of" in row}


def number(row, key):
    """The cell as a number; None if it is empty."""
    return float(row[key]) if row.get(key) else None


# ---- Ways to draw. Each gets the axes; what it is given None for is left out. ----


def bars(ax, groups, series, theirs=(), log=False):
    """A bar for each group and series; a diamond for each group that the paper has a number of."""
    width = .8 / len(series)
    for i, (name, values) in enumerate(series.items()):
        some = [(x, v) for x, v in enumerate(values) if v is not None]
        ax.bar([x - .4 + width * (i + .5) for x, _ in some], [v for _, v in some], width,
               color=COLOURS[i % len(COLOURS)], label=name, bottom=1e-9 if log else 0)
    marks = [(x, v) for x, v in enumerate(theirs) if v is not None]
    if marks:
        ax.plot([x for x, _ in marks], [v for _, v in marks], "D", color=THEIRS, markersize=6,
                markerfacecolor="white", label="theirs")
    long = sum(max(map(len, group.split("\n"))) for group in groups) > 40
    ax.set_xticks(range(len(groups)), groups, rotation=30 if long else 0,
                  ha="right" if long else "center")
    values = [v for each in (*series.values(), theirs) for v in each if v]
    if log:
        ax.set_yscale("log")
        ax.set_ylim(min(values) / 2, max(values) * 5)
    elif values:
        ax.set_ylim(min(0, *values) * 1.1, max(0, *values) * 1.4)


def curves(ax, series, styles=("o-",)):
    """A line for each series of points."""
    for i, (name, points) in enumerate(series.items()):
        points = sorted(points)
        ax.plot([x for x, _ in points], [y for _, y in points], styles[i % len(styles)],
                color=COLOURS[i // len(styles) % len(COLOURS)], label=name, markersize=4)


def level(ax, value, label):
    ax.axhline(value, color=THEIRS, linestyle="--", linewidth=1.2, label=label)


def band(ax, low, high, label):
    ax.axhspan(low, high, facecolor="none", edgecolor="#555555", hatch="///", linewidth=.6,
               alpha=.6, label=label)


def dots(ax, names, ours, theirs):
    """A line for each name on one logarithmic axis: ours a dot, theirs a diamond. Names stand above
    their lines."""
    places = range(len(names))
    for values, mark, colour, label in ((ours, "o", COLOURS[0], "ours"),
                                        (theirs, "D", THEIRS, "theirs")):
        some = [(v, y) for y, v in zip(places, values) if v]
        ax.plot([v for v, _ in some], [y for _, y in some], mark, color=colour, markersize=7,
                markerfacecolor=colour if mark == "o" else "none", label=label)
    for place, name in zip(places, names):
        ax.text(.02, place - .3, name, transform=ax.get_yaxis_transform(), fontsize=7)
    ax.set_xscale("log")
    ax.set_yticks(places, [""] * len(names))
    ax.set_ylim(len(names) - .5, -.9)
    ax.margins(x=.15)


def doubling(ax):
    """An axis of numbers that double."""
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")


HEAD = ("Ours is coloured, theirs is black: a diamond is a number of the paper's text, a dashed "
        "line a level, a hatched band a range. Nothing is read off their drawings.")


class Figure(NamedTuple):
    """One plot. rows: beginnings of first cells in reproduction.md; ours: what kind of result."""
    name: str
    title: str
    rows: tuple
    ours: str
    xlabel: str
    ylabel: str
    command: str
    draw: Callable


# ---- The page ----


def pyplot(build, install=True):
    """matplotlib without a display, or None. If Python has none, it is installed under build/, in
    an environment of its own."""
    place = os.path.join(build, VENV)
    if importlib.util.find_spec("matplotlib") is None:
        sys.path += glob.glob(os.path.join(place, "lib", "python3*", "site-packages"))
    if importlib.util.find_spec("matplotlib") is None and install:
        print("plots: installing matplotlib under", place, file=sys.stderr)
        for command in ([sys.executable, "-m", "venv", place],
                        [os.path.join(place, "bin", "python"), "-m", "pip", "install", "--quiet",
                         "--disable-pip-version-check", "--retries", "1", "matplotlib"]):
            if subprocess.run(command, check=False, capture_output=True).returncode != 0:
                break
        importlib.invalidate_caches()
        sys.path += glob.glob(os.path.join(place, "lib", "python3*", "site-packages"))
    if importlib.util.find_spec("matplotlib") is None:
        return None
    import matplotlib
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "spec_connector", "svg.fonttype": "none", "font.size": 8,
        "font.family": "DejaVu Sans", "axes.grid": True, "grid.color": "#dddddd",
        "axes.axisbelow": True, "axes.titlesize": 8.5, "legend.fontsize": 6.5,
        "hatch.linewidth": .5, "savefig.dpi": DPI})
    from matplotlib import pyplot as plt
    return plt


def draw(ax, figure, table):
    """Returns whether the tables had something to draw."""
    table.used.clear()
    ok = figure.draw(ax, table)
    if not ok and not table.quick:  # a table of an earlier version lacks a column
        ax.clear()
        with table.of_quick_runs():
            ok = figure.draw(ax, table)
    quick = "" if table.quick or not any("quick" in name for name in table.used) else ", quick run"
    ax.set(xlabel=figure.xlabel, ylabel=figure.ylabel)
    title = textwrap.fill(figure.title, TITLE)
    ax.set_title(f"{title}\nours: {figure.ours}{quick}", loc="left")
    if ok:
        handles, labels = ax.get_legend_handles_labels()
        if len(labels) > 1 or labels and not labels[0].startswith("ours"):
            ax.legend(handles, labels, loc="best", framealpha=.85,
                      ncols=2 if len(labels) > 6 else 1)
    else:
        ax.clear()
        ax.set_title(title + "\n" + textwrap.fill(f"no table: {figure.command}", TITLE),
                     loc="left", y=.5)
        ax.set_axis_off()
    return ok


def page(figures, results, build, quick, out=None):
    """Draws the page into docs/results/plots. Returns the names of the figures without a table, or
    None without matplotlib."""
    plt = pyplot(build)
    if plt is None:
        print("plots: skipped: matplotlib is absent and could not be installed; the tables are "
              "complete. To draw them: install matplotlib (Debian: python3-matplotlib), then "
              "bench/run reproduce --only plots")
        return None
    table, missing = Tables(results, quick), []
    count = math.ceil(len(figures) / COLUMNS)
    sheet, axes = plt.subplots(count, COLUMNS, figsize=(WIDTH * COLUMNS, HEIGHT * count))
    sheet.subplots_adjust(left=.03, right=.98, bottom=.03, top=.975, wspace=.3, hspace=.55)
    sheet.text(.03, .992, HEAD, fontsize=9)
    for ax, figure in zip(axes.flat, figures):
        if not draw(ax, figure, table):
            missing.append(figure.name)
    for ax in axes.flat[len(figures):]:
        ax.set_axis_off()
    out = out or os.path.join(results, "plots")
    os.makedirs(out, exist_ok=True)
    stem = os.path.join(out, "reproduction" + "-quick" * quick)
    sheet.savefig(stem + ".svg", metadata={"Date": None, "Creator": None})
    sheet.savefig(stem + ".png", metadata={"Software": None})
    plt.close(sheet)
    print(f"plots: {stem}.svg, .png: {len(figures) - len(missing)} of {len(figures)} figures"
          + (f"; without a table: {', '.join(missing)}" if missing else ""))
    return missing
