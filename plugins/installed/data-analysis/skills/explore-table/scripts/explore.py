#!/usr/bin/env python3
"""Find what a table says: standard library only. See ../SKILL.md."""

import argparse
import csv
import difflib
import importlib.util
import itertools
import math
import statistics
import sys
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

OUTPUTS = Path("/mnt/user-data/outputs")
DRAW = Path(__file__).resolve().parents[2] / "svg-charts/scripts/draw.py"  # of the same plugin
MAX_FILE = 256 << 20
MAX_ROWS = 1_000_000
MAX_COLUMNS = 200
MAX_NUMERIC = 20  # columns that are compared with each other
MAX_GROUPS = 50
SHOWN = 8
MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}

csv.field_size_limit(16 << 20)


class Problem(Exception):
    """What the caller has to put right."""


def read(path):
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
    delimiter = max(",;\t|", key=text.split("\n", 1)[0].count)
    rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    header = [name.strip() or f"column_{i + 1}" for i, name in enumerate(next(rows, []))]
    if not 0 < len(header) <= MAX_COLUMNS:
        raise Problem(f"{path} has {len(header)} columns: a table has 1 to {MAX_COLUMNS}")
    table = [row + [""] * (len(header) - len(row)) for row in itertools.islice(rows, MAX_ROWS) if row]
    if len(table) < 2:
        raise Problem(f"{path} has fewer than two rows")
    return {name: [row[i].strip() for row in table] for i, name in enumerate(header)}


def number(text):
    text = text.strip("€$£%").replace(" ", "").replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def day(text):
    for form in ("%Y-%m-%d", "%Y-%m", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y"):
        try:
            return datetime.strptime(text[:10], form).date()
        except ValueError:
            continue
    return None


def classify(table):
    """The columns of figures, of dates and of categories, as values with None for what is missing."""
    figures, dates, categories = {}, {}, {}
    for name, texts in table.items():
        present = [t for t in texts if t.lower() not in MISSING]
        if not present:
            continue
        values = [None if t.lower() in MISSING else number(t) for t in texts]
        if sum(v is not None for v in values) >= 0.95 * len(present):
            if len(set(present)) > 2 and not (all(len(t) > 1 and t[0] == "0" for t in present)):
                figures[name] = values
            continue
        days = [None if t.lower() in MISSING else day(t) for t in texts]
        if sum(d is not None for d in days) >= 0.95 * len(present):
            dates[name] = days
        elif 1 < len(set(present)) <= min(MAX_GROUPS, max(2, len(present) // 2)):
            categories[name] = [None if t.lower() in MISSING else t for t in texts]
    return figures, dates, categories


def is_identifier(values):
    """Whether a column counts the rows: whole numbers that are all different, in order."""
    present = [v for v in values if v is not None]
    return len(present) > 2 and all(v.is_integer() for v in present) and all(b == a + 1 for a, b in itertools.pairwise(present))


def shown(value):
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def correlation(pairs):
    """Pearson's r; None when a side does not vary."""
    xs, ys = zip(*pairs)
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    dx, dy = math.sqrt(sum((x - mx) ** 2 for x in xs)), math.sqrt(sum((y - my) ** 2 for y in ys))
    return sum((x - mx) * (y - my) for x, y in pairs) / (dx * dy) if dx and dy else None


def ranks(values):
    order = sorted(range(len(values)), key=values.__getitem__)
    out, i = [0.0] * len(values), 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and values[order[j + 1]] == values[order[i]]:
            j += 1
        for k in range(i, j + 1):
            out[order[k]] = (i + j) / 2
        i = j + 1
    return out


def explained(values, groups):
    """The share of the variance of values that lies between groups (eta squared)."""
    parts = defaultdict(list)
    for v, g in zip(values, groups):
        if v is not None and g is not None:
            parts[g].append(v)
    everything = [v for part in parts.values() for v in part]
    if len(parts) < 2 or len(everything) <= len(parts):
        return 0.0, parts
    mean = statistics.fmean(everything)
    total = sum((v - mean) ** 2 for v in everything)
    between = sum(len(part) * (statistics.fmean(part) - mean) ** 2 for part in parts.values())
    return (between / total if total else 0.0), parts


def choose(args, figures, categories, table):
    for name in (args.target, args.by):
        if name and name not in table:
            close = difflib.get_close_matches(name, table, 1)
            raise Problem(f"there is no column {name!r}" + (f", did you mean {close[0]!r}?" if close else "") + " The columns are: " + ", ".join(table)[:500])
    if args.target and args.target not in figures:
        raise Problem(f"the column {args.target!r} has no figures that vary; these have: " + ", ".join(figures))
    if args.by and args.by not in categories:
        values = [None if t.lower() in MISSING else t for t in table[args.by]]
        if len(set(values)) > MAX_GROUPS:
            raise Problem(f"the column {args.by!r} has {len(set(values))} values: at most {MAX_GROUPS} are groups")
        categories[args.by] = values
    target = args.target
    if not target:
        spread = {}
        for name, values in figures.items():
            present = [v for v in values if v is not None]
            if not is_identifier(values):
                mean = abs(statistics.fmean(present)) or 1
                spread[name] = statistics.pstdev(present) / mean
        target = max(spread, key=spread.get, default=None)
    by = args.by
    if not by and target:
        by = max(categories, key=lambda c: explained(figures[target], categories[c])[0], default=None)
    return target, by


def part_groups(target, by, figures, categories):
    share, parts = explained(figures[target], categories[by])
    ordered = sorted(parts.items(), key=lambda p: -statistics.fmean(p[1]))
    lines = [f"`{by}` explains {share:.0%} of the variance of `{target}`.", "", f"| {by} | rows | mean | median | sum |", "|---|---|---|---|---|"]
    picked = ordered if len(ordered) <= 2 * SHOWN else ordered[:SHOWN] + ordered[-SHOWN:]
    for name, part in picked:
        lines.append(f"| {name.replace('|', '/')[:40]} | {len(part)} | {shown(statistics.fmean(part))} | {shown(statistics.median(part))} | {shown(sum(part))} |")
    if len(picked) < len(ordered):
        lines.append(f"\nThe {len(ordered) - len(picked)} groups between them are left out.")
    return lines, parts


def part_relations(figures):
    names = [n for n in figures if not is_identifier(figures[n])][:MAX_NUMERIC]
    found = []
    for a, b in itertools.combinations(names, 2):
        pairs = [(x, y) for x, y in zip(figures[a], figures[b]) if x is not None and y is not None]
        if len(pairs) < 5:
            continue
        plain = correlation(pairs)
        ranked = correlation(list(zip(ranks([x for x, _ in pairs]), ranks([y for _, y in pairs]))))
        if plain is not None and max(abs(plain), abs(ranked or 0)) >= 0.3:
            found.append((max(abs(plain), abs(ranked or 0)), a, b, plain, ranked or 0, len(pairs)))
    lines = ["| columns | Pearson | rank | rows |", "|---|---|---|---|"]
    for _, a, b, plain, ranked, n in sorted(found, reverse=True)[:SHOWN]:
        lines.append(f"| {a}, {b} | {plain:+.2f} | {ranked:+.2f} | {n} |")
    return lines if found else ["No two columns of figures have a correlation of 0.3 or more."]


def part_trend(target, figures, dates):
    name = next(iter(dates))
    pairs = [(d, v) for d, v in zip(dates[name], figures[target]) if d is not None and v is not None]
    if not pairs:
        return ["No row has a date and a figure."], None, []
    days = (max(d for d, _ in pairs) - min(d for d, _ in pairs)).days
    unit, period = ("day", lambda d: d.isoformat()) if days <= 62 else ("month", lambda d: d.strftime("%Y-%m")) if days <= 1500 else ("year", lambda d: str(d.year))
    sums = defaultdict(list)
    for d, v in pairs:
        sums[period(d)].append(v)
    series = [(p, sum(v)) for p, v in sorted(sums.items())]
    first, last = series[0], series[-1]
    change = f" ({(last[1] - first[1]) / abs(first[1]):+.0%})" if first[1] else ""
    lines = [f"Sum of `{target}` by {unit} of `{name}`: {shown(first[1])} in {first[0]}, {shown(last[1])} in {last[0]}{change}, {len(series)} periods."]
    if len(series) > 2:
        (_, a), (when, b) = max(itertools.pairwise(series), key=lambda p: abs(p[1][1] - p[0][1]))
        lines.append(f"The largest step: {shown(a)} to {shown(b)} in {when}. The first and the last period may be incomplete.")
    return lines, unit, series


def part_outliers(target, figures):
    present = sorted(v for v in figures[target] if v is not None)
    if len(present) < 8:
        return [], False
    low, _, high = statistics.quantiles(present, n=4)
    reach = 3 * (high - low)
    lines = [f"line {i + 2}: {shown(v)}" for i, v in enumerate(figures[target]) if v is not None and not low - reach <= v <= high + reach]
    mean, median = statistics.fmean(present), statistics.median(present)
    skewed = abs(mean - median) > 0.3 * (statistics.pstdev(present) or 1)
    if not lines:
        return [f"`{target}` has none."], skewed
    more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return [f"{len(lines)} rows of `{target}` are far from the rest ({shown(low)} to {shown(high)} is the middle half): " + "; ".join(lines[:SHOWN]) + more + "."], skewed


def doubts(table, target, parts, skewed):
    rows = len(next(iter(table.values())))
    lines = [f"Only {rows} rows."] if rows < 30 else []
    for name, texts in table.items():
        gone = sum(t.lower() in MISSING for t in texts)
        if gone > 0.05 * rows:
            lines.append(f"`{name}` is missing in {gone} of {rows} rows.")
    small = [name for name, part in parts.items() if len(part) < 5]
    if small:
        lines.append(f"{len(small)} groups have fewer than five rows: " + ", ".join(small[:SHOWN]) + ".")
    if skewed:
        lines.append(f"`{target}` is skewed: quote medians.")
    return lines[:20]


def charts(path, out, target, by, parts, series):
    """Draws with the other skill of the plugin, when the thread has it."""
    if not DRAW.is_file():
        return []
    spec = importlib.util.spec_from_file_location("draw", DRAW)
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    made = []

    def chart(name, title, x, y, rows):
        source = out / f".{path.stem}.chart.csv"
        with open(source, "w", encoding="utf-8", newline="") as f:
            csv.writer(f).writerows([("x", "y"), *rows])
        to = out / f"{path.stem}.{name}.svg"
        try:
            picture, _ = draw.KINDS["bar"](draw.read(source), argparse.Namespace(x="x", y="y", by=None, title=title, unit=None, agg="sum", top=24, file_order=name == "trend"))
            to.write_text(picture.done().replace(">x<", f">{x}<").replace(">sum of y<", f">{y}<"), "utf-8")
            made.append(to)
        finally:
            source.unlink()

    if parts:
        chart("groups", f"Mean of {target} by {by}", by, "mean", [(name, statistics.fmean(part)) for name, part in parts.items()])
    if series:
        chart("trend", f"{target} over time", "", "sum", series[-24:])
    return made


def explore(args):
    table = read(args.file)
    figures, dates, categories = classify(table)
    target, by = choose(args, figures, categories, table)
    rows = len(next(iter(table.values())))
    lines = [f"# What {args.file.name} says", "", f"{rows} rows, {len(table)} columns: {len(figures)} of figures, {len(categories)} categories, {len(dates)} of dates."]
    parts, series, skewed = {}, [], False
    if target and by:
        group_lines, parts = part_groups(target, by, figures, categories)
        lines += ["", "## Groups", "", *group_lines]
    if len(figures) > 1:
        lines += ["", "## Relations", "", *part_relations(figures)]
    if target and dates:
        trend_lines, _, series = part_trend(target, figures, dates)
        lines += ["", "## Trend", "", *trend_lines]
    if target:
        outlier_lines, skewed = part_outliers(target, figures)
        lines += ["", "## Outliers", "", *outlier_lines] if outlier_lines else []
    else:
        lines += ["", "No column has figures that vary: count its categories with a profile of the file."]
    doubtful = doubts(table, target, parts, skewed)
    lines += ["", "## Doubts", "", *(f"- {d}" for d in doubtful)] if doubtful else []
    args.out.mkdir(parents=True, exist_ok=True)
    made = charts(args.file, args.out, target, by, parts, series)
    report = args.out / f"{args.file.stem}.explore.md"
    text = "\n".join(lines) + "\n"
    report.write_text(text, "utf-8")
    print(text)
    print("Written: " + ", ".join(str(p) for p in [report, *made]))


def compare(args):
    old, new = read(args.file), read(args.against)
    for label, names in (("Columns that went", [c for c in old if c not in new]), ("Columns that came", [c for c in new if c not in old])):
        if names:
            print(f"{label}: {', '.join(names)}")
    rows = len(next(iter(old.values()))), len(next(iter(new.values())))
    print(f"Rows: {rows[0]} before, {rows[1]} after.\n\n| column | sum before | sum after | change | mean before | mean after |\n|---|---|---|---|---|---|")
    before, after = classify(old)[0], classify(new)[0]
    for name in [n for n in before if n in after and not is_identifier(before[n])]:
        a, b = ([v for v in side[name] if v is not None] for side in (before, after))
        change = f"{(sum(b) - sum(a)) / abs(sum(a)):+.1%}" if sum(a) else ""
        print(f"| {name} | {shown(sum(a))} | {shown(sum(b))} | {change} | {shown(statistics.fmean(a))} | {shown(statistics.fmean(b))} |")
    if not args.key:
        return
    for table, path in ((old, args.file), (new, args.against)):
        if args.key not in table:
            raise Problem(f"{path.name} has no column {args.key!r}; it has: " + ", ".join(table)[:500])
        twice = [k for k, n in Counter(table[args.key]).items() if n > 1]
        if twice:
            raise Problem(f"{args.key!r} does not name a row in {path.name}: {twice[0]!r} stands there several times")
    at = [{k: i for i, k in enumerate(table[args.key])} for table in (old, new)]
    went, came = [k for k in at[0] if k not in at[1]], [k for k in at[1] if k not in at[0]]
    shared = [c for c in old if c in new]
    changed = Counter()
    rows_changed = 0
    for key in at[0].keys() & at[1].keys():
        differs = [c for c in shared if old[c][at[0][key]] != new[c][at[1][key]]]
        changed.update(differs)
        rows_changed += bool(differs)
    print(f"\nBy `{args.key}`: {len(went)} rows went, {len(came)} came, {rows_changed} changed.")
    for label, keys in (("Went", went), ("Came", came)):
        if keys:
            print(f"{label}: " + ", ".join(keys[:SHOWN]) + (" …" if len(keys) > SHOWN else ""))
    if changed:
        print("Changed columns: " + ", ".join(f"{c} ({n})" for c, n in changed.most_common(SHOWN)))


def main(argv=None):
    parser = argparse.ArgumentParser(description="Find what a table says.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", help="the column of figures that matters")
    parser.add_argument("--by", help="the column whose values are groups")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with a later version of the table")
    parser.add_argument("--key", help="with --against: the column that names a row")
    parser.add_argument("--out", type=Path, default=OUTPUTS, help=f"folder for the results (default {OUTPUTS})")
    args = parser.parse_args(argv)
    try:
        compare(args) if args.against else explore(args)
    except (Problem, OSError, csv.Error) as err:
        print(f"explore: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
