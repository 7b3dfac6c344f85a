#!/usr/bin/env python3
"""Draw a chart of a CSV file as SVG: standard library only. See ../SKILL.md."""

import argparse
import csv
import difflib
import html
import math
import sys
from datetime import date, datetime
from pathlib import Path

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_FILE = 256 << 20
MAX_POINTS = 5000
MAX_LINES = 8
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 430, 70, 20, 58, 56
# Okabe and Ito: colours that readers with any colour vision can tell apart.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A8A00", "#000000"]
AGGREGATES = {"sum": sum, "mean": lambda v: sum(v) / len(v), "min": min, "max": max, "count": len}

csv.field_size_limit(16 << 20)


class Problem(Exception):
    """What the caller has to put right."""


def read(path):
    """The rows of a CSV file as dictionaries, whatever its delimiter."""
    if not path.is_file():
        raise Problem(f"there is no file {path}")
    if path.stat().st_size > MAX_FILE:
        raise Problem(f"{path} has more than {MAX_FILE >> 20} MiB")
    data = path.read_bytes()
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            text = data.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    else:
        raise Problem(f"{path} is neither UTF-8 nor Windows-1252")
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t|", key=first.count)
    rows = list(csv.DictReader(text.splitlines(keepends=True), delimiter=delimiter, restval=""))
    if not rows:
        raise Problem(f"{path} has no rows")
    return rows


def check(rows, *names):
    columns = [c for c in rows[0] if c is not None]
    for name in names:
        if name and name not in columns:
            close = difflib.get_close_matches(name, columns, 1)
            raise Problem(f"there is no column {name!r}" + (f", did you mean {close[0]!r}?" if close else "") + " The columns are: " + ", ".join(columns)[:500])


def figure(text):
    """A text as a number; None when it is none."""
    text = (text or "").strip().strip("€$£%").replace(" ", "").replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def day(text):
    """A text as a number of days; None when it is no date."""
    text = (text or "").strip()
    for form in ("%Y-%m-%d", "%Y-%m", "%d.%m.%Y", "%d/%m/%Y", "%Y"):
        try:
            return datetime.strptime(text[:10], form).toordinal()
        except ValueError:
            continue
    return None


def ticks(low, high, most=6):
    """Round numbers between low and high."""
    if low == high:
        low, high = low - 1, high + 1
    raw = (high - low) / most
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.floor(low / step)
    return [round(i * step, 12) for i in range(first, math.ceil(high / step) + 1)]


def number(value):
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            scale = 1e3 if letter == "k" else size
            return f"{value / scale:.4g}{letter}"
    return f"{value:.4g}"


class Picture:
    """An SVG with axes."""

    def __init__(self, title, x_label, y_label):
        self.out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#333">',
            f"<title>{html.escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        ]
        self.text(LEFT, 22, title, size=15, bold=True)
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x_label, "middle")
        self.text(LEFT, 38, y_label, size=11, colour="#666")

    def text(self, x, y, text, anchor="start", size=12, bold=False, colour="#333", turn=0):
        more = (' font-weight="600"' if bold else "") + (f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else "")
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{more}>{html.escape(str(text))}</text>')

    def add(self, text):
        self.out.append(text)

    def scale_y(self, low, high):
        marks = ticks(low, high)
        low, high = marks[0], marks[-1]

        def at(value):
            return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - BOTTOM - TOP)

        for mark in marks:
            self.add(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at(mark):.1f}" y2="{at(mark):.1f}" stroke="{"#888" if mark == 0 else "#e4e4e4"}"/>')
            self.text(LEFT - 6, at(mark) + 4, number(mark), "end", 11)
        return at

    def scale_x(self, low, high, dates):
        marks = [m for m in ticks(low, high, 7) if low <= m <= high] if not dates else [low + (high - low) * i / 5 for i in range(6)]
        span = (high - low) or 1

        def at(value):
            return LEFT + 8 + (value - low) / span * (WIDTH - RIGHT - LEFT - 16)

        for mark in marks:
            self.text(at(mark), HEIGHT - BOTTOM + 18, date.fromordinal(round(mark)).isoformat() if dates else number(mark), "middle", 11)
        return at

    def legend(self, names):
        x = WIDTH - RIGHT
        for i, name in reversed(list(enumerate(names))):
            label = str(name)[:18]
            x -= 7 * len(label) + 22
            self.add(f'<rect x="{x}" y="30" width="10" height="10" fill="{COLOURS[i % len(COLOURS)]}"/>')
            self.text(x + 14, 39, label, size=11)

    def done(self):
        return "\n".join(self.out) + "\n</svg>\n"


def label(name, unit):
    return f"{name} ({unit})" if unit else name


def bar(rows, args):
    if not args.x or not args.y and args.agg != "count":
        raise Problem("bar needs --x and --y (or --agg count)")
    groups, used = {}, 0
    for row in rows:
        value = 1.0 if args.agg == "count" else figure(row[args.y])
        if value is not None and row[args.x].strip():
            groups.setdefault(row[args.x].strip(), []).append(value)
            used += 1
    values = [(name, AGGREGATES[args.agg](v)) for name, v in groups.items()]
    if not values:
        raise Problem(f"the column {args.y!r} has no figures")
    if not args.file_order:
        values.sort(key=lambda v: -v[1])
    rest = values[args.top :]
    values = values[: args.top]
    if rest and args.agg in ("sum", "count"):
        values.append((f"other ({len(rest)})", sum(v for _, v in rest)))
    picture = Picture(args.title or f"{args.y or 'rows'} by {args.x}", args.x, label(f"{args.agg} of {args.y}" if args.y and args.agg != "count" else "rows", args.unit))
    at = picture.scale_y(min(0, min(v for _, v in values)), max(0, max(v for _, v in values)))
    step = (WIDTH - LEFT - RIGHT) / len(values)
    for i, (name, value) in enumerate(values):
        x, y = LEFT + step * (i + 0.15), min(at(value), at(0))
        picture.add(f'<rect x="{x:.1f}" y="{y:.1f}" width="{step * 0.7:.1f}" height="{max(abs(at(value) - at(0)), 0.5):.1f}" fill="{COLOURS[0]}"><title>{html.escape(name)}: {value:g}</title></rect>')
        fits = len(name) * 6.5 < step
        picture.text(LEFT + step * (i + 0.5), HEIGHT - BOTTOM + 16, name if fits else name[:12], "middle" if fits else "end", 11, turn=0 if fits else -30)
        if len(values) <= 15:
            picture.text(LEFT + step * (i + 0.5), y - 4, number(value), "middle", 10)
    return picture, used


def points(rows, args):
    """(series, x, y) of the rows that have both, and whether x is dates."""
    if not args.x or not args.y:
        raise Problem(f"{args.kind} needs --x and --y")
    dates = sum(day(row[args.x]) is not None and figure(row[args.x]) is None or len(row[args.x].strip()) == 7 for row in rows) > len(rows) / 2
    read_x = day if dates else figure
    found = []
    for row in rows:
        x, y = read_x(row[args.x]), figure(row[args.y])
        if x is not None and y is not None:
            found.append((row[args.by].strip() if args.by else "", x, y))
    if not found:
        raise Problem(f"no row has a figure in {args.y!r} and a figure or date in {args.x!r}")
    if len({s for s, _, _ in found}) > MAX_LINES:
        raise Problem(f"{args.by!r} has more than {MAX_LINES} values, which is unreadable: choose some rows first")
    return found, dates


def line(rows, args):
    found, dates = points(rows, args)
    series = {}
    for name, x, y in found:
        series.setdefault(name, {}).setdefault(x, []).append(y)
    drawn = {name: sorted((x, AGGREGATES[args.agg](v)) for x, v in values.items()) for name, values in series.items()}
    ys = [y for values in drawn.values() for _, y in values]
    picture = Picture(args.title or f"{args.y} by {args.x}", args.x, label(args.y, args.unit))
    at_y = picture.scale_y(0 if 0 <= min(ys) < max(ys) / 3 else min(ys), max(ys))
    at_x = picture.scale_x(min(x for _, x, _ in found), max(x for _, x, _ in found), dates)
    for i, values in enumerate(drawn.values()):
        step = max(1, len(values) // MAX_POINTS)
        path = " ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in values[::step])
        picture.add(f'<polyline points="{path}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>')
        if len(values) <= 40:
            for x, y in values:
                picture.add(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{COLOURS[i]}"/>')
    if args.by:
        picture.legend(drawn)
    return picture, len(found)


def scatter(rows, args):
    found, dates = points(rows, args)
    names = list(dict.fromkeys(name for name, _, _ in found))
    picture = Picture(args.title or f"{args.y} against {args.x}", args.x, label(args.y, args.unit))
    at_y = picture.scale_y(min(y for _, _, y in found), max(y for _, _, y in found))
    at_x = picture.scale_x(min(x for _, x, _ in found), max(x for _, x, _ in found), dates)
    for name, x, y in found[:: max(1, len(found) // MAX_POINTS)]:
        picture.add(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3.5" fill="{COLOURS[names.index(name)]}" fill-opacity="0.6"/>')
    if args.by:
        picture.legend(names)
    return picture, len(found)


def hist(rows, args):
    if not args.y:
        raise Problem("hist needs --y")
    values = sorted(v for v in (figure(row[args.y]) for row in rows) if v is not None)
    if not values:
        raise Problem(f"the column {args.y!r} has no figures")
    low, high = values[0], values[-1]
    bins = max(1, min(40, math.ceil(math.sqrt(len(values))))) if high > low else 1
    width = (high - low) / bins or 1
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int((value - low) / width))] += 1
    picture = Picture(args.title or f"How {args.y} is spread", label(args.y, args.unit), "rows")
    at_y = picture.scale_y(0, max(counts))
    at_x = picture.scale_x(low, low + bins * width, False)
    for i, count in enumerate(counts):
        x = at_x(low + i * width)
        picture.add(f'<rect x="{x:.1f}" y="{at_y(count):.1f}" width="{max(at_x(low + (i + 1) * width) - x - 1, 1):.1f}" height="{at_y(0) - at_y(count):.1f}" fill="{COLOURS[0]}"/>')
    return picture, len(values)


KINDS = {"bar": bar, "line": line, "scatter": scatter, "hist": hist}


def main(argv=None):
    parser = argparse.ArgumentParser(description="Draw a chart of a CSV file as SVG.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("file", type=Path)
    for name, text in (("x", "column of the axis"), ("y", "column of the figures"), ("by", "column of the series"), ("title", "above the chart"), ("unit", "of the figures")):
        parser.add_argument("--" + name, help=text)
    parser.add_argument("--agg", default="sum", choices=AGGREGATES)
    parser.add_argument("--top", type=int, default=12, choices=range(1, 41), metavar="1..40", help="how many bars (default 12)")
    parser.add_argument("--file-order", action="store_true", help="bars in the order of the file")
    parser.add_argument("--out", type=Path, help=f"default: {OUTPUTS}/NAME-KIND.svg")
    args = parser.parse_args(argv)
    try:
        rows = read(args.file)
        check(rows, args.x, args.y, args.by)
        picture, used = KINDS[args.kind](rows, args)
        out = args.out or OUTPUTS / f"{args.file.stem}-{args.kind}.svg"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(picture.done(), "utf-8")
    except (Problem, OSError, csv.Error) as err:
        print(f"draw: {err}", file=sys.stderr)
        return 2
    print(f"{out}: {used} of {len(rows)} rows" + (f"; {len(rows) - used} without a figure left out" if used < len(rows) else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
