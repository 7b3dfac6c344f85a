#!/usr/bin/env python3
"""Draw a chart of a table. See ../SKILL.md."""

import argparse
import difflib
import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt  # noqa: E402
import pandas as pd  # noqa: E402

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_FILE = 256 << 20
MAX_SERIES = 12
MAX_BARS = 60
MAX_POINTS = 20_000
KINDS = ("bar", "barh", "stacked", "line", "area", "scatter", "hist", "box", "heatmap")
FORMS = ("ISO8601", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")
PER = {"day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}
# Okabe and Ito: colours that readers with any colour vision can tell apart.
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000"]


class Problem(Exception):
    """What the caller has to put right."""


def read(path, sheet):
    if not path.is_file():
        raise Problem(f"there is no file {path}")
    if path.stat().st_size > MAX_FILE:
        raise Problem(f"{path} has more than {MAX_FILE >> 20} MiB")
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv", ".txt"):
        for encoding in ("utf-8-sig", "cp1252"):
            try:
                return pd.read_csv(path, sep=None, engine="python", encoding=encoding)
            except UnicodeDecodeError:
                continue
        raise Problem(f"{path} is neither UTF-8 nor Windows-1252")
    if kind == ".xlsx":
        return pd.read_excel(path, sheet_name=sheet or 0)
    if kind in (".json", ".jsonl", ".ndjson"):
        return pd.read_json(path, lines=kind != ".json")
    if kind == ".parquet":
        return pd.read_parquet(path)
    raise Problem(f"{path.name}: it reads .csv, .tsv, .xlsx, .json, .jsonl and .parquet")


def check_columns(table, names):
    for name in names:
        if name not in table.columns:
            close = difflib.get_close_matches(name, map(str, table.columns), 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise Problem(f"there is no column {name!r}{hint} The columns are: " + ", ".join(map(str, table.columns))[:500])


def figures(table, names):
    """The columns as numbers: texts such as "1,234" are, others are dropped and counted."""
    for name in names:
        if not pd.api.types.is_numeric_dtype(table[name]):
            text = table[name].astype("string").str.replace(",", "").str.replace(r"[€$£%\s]", "", regex=True)
            table[name] = pd.to_numeric(text, errors="coerce")
            if table[name].isna().all():
                raise Problem(f"the column {name!r} has no numbers")
    return table


def as_dates(table, args):
    texts = table[args.x].astype("string")
    for form in FORMS:
        dates = pd.to_datetime(texts, format=form, errors="coerce")
        if dates.notna().mean() > 0.5:
            break
    else:
        if args.per:
            raise Problem(f"--per {args.per}: the column {args.x!r} has no dates")
        return table
    table[args.x] = dates.dt.to_period(PER[args.per]).dt.to_timestamp() if args.per else dates
    return table.dropna(subset=[args.x])


def prepare(args):
    table = read(args.file, args.sheet)
    rows = len(table)
    ys = args.y.split(",") if args.y else []
    check_columns(table, [n for n in (args.x, args.by, *ys) if n])
    if args.where:
        try:
            table = table.query(args.where, engine="python")
        except Exception as err:  # pandas raises what its parser does
            raise Problem(f"--where {args.where}: {err}") from None
    table = table.copy()
    needed = ys if args.agg != "count" or args.kind in ("scatter", "hist", "box") else []
    table = figures(table, [*needed, *([args.x] if args.kind in ("scatter", "hist") and args.x else [])])
    table = table.dropna(subset=[n for n in (args.x, args.by, *needed) if n])
    if args.x and args.kind in ("line", "area", "bar", "stacked") and (args.per or not pd.api.types.is_numeric_dtype(table[args.x])):
        table = as_dates(table, args)
    if table.empty:
        raise Problem("no rows are left to draw")
    return table, ys, rows


def limit(wide, args):
    """Keeps the largest rows or columns of a table of figures."""
    if not args.top:
        return wide
    if wide.shape[1] > args.top and args.by:
        order = wide.sum().sort_values(ascending=False).index
        wide, rest = wide[order[: args.top]], wide[order[args.top :]]
        return wide.assign(other=rest.sum(axis=1)) if args.agg in ("sum", "count") else wide
    if args.kind in ("bar", "barh", "stacked") and len(wide) > args.top:
        order = wide.sum(axis=1).sort_values(ascending=False).index
        kept, rest = wide.loc[order[: args.top]], wide.loc[order[args.top :]]
        if args.agg in ("sum", "count"):
            kept = pd.concat([kept, pd.DataFrame([rest.sum()], index=["other"])])
        return kept
    return wide


def aggregate(table, ys, args):
    """One row for each x, one column for each series."""
    if not args.x or not ys and args.agg != "count":
        raise Problem(f"{args.kind} needs --x and --y (or --agg count)")
    if args.by and len(ys) > 1:
        raise Problem("--by wants one column in --y")
    order = list(dict.fromkeys(table[args.x])) if not pd.api.types.is_datetime64_any_dtype(table[args.x]) else None
    groups = table.groupby([args.x, args.by] if args.by else [args.x], sort=order is None)
    wide = groups.size() if args.agg == "count" else groups[ys if len(ys) > 1 else ys[0]].agg(args.agg)
    if args.by:
        wide = wide.unstack(args.by)
    wide = wide.to_frame(ys[0] if ys else "rows") if isinstance(wide, pd.Series) else wide
    if order is not None:
        wide = wide.sort_index() if pd.api.types.is_numeric_dtype(table[args.x]) else wide.reindex(order)
    wide = limit(wide, args)
    if args.sort:
        wide = wide.loc[wide.sum(axis=1).sort_values(ascending=args.kind == "barh").index]
    if wide.shape[1] > MAX_SERIES and args.kind != "heatmap":
        raise Problem(f"{wide.shape[1]} series are more than {MAX_SERIES}, and unreadable: use --top")
    if len(wide) > MAX_BARS and args.kind in ("bar", "barh", "stacked", "heatmap"):
        raise Problem(f"{len(wide)} values of {args.x} are more than {MAX_BARS}, and unreadable: use --top, --per or a line")
    return wide


def draw_wide(axes, wide, args):
    if pd.api.types.is_datetime64_any_dtype(wide.index) and args.kind in ("bar", "stacked"):
        wide.index = wide.index.strftime({"month": "%b %Y", "year": "%Y"}.get(args.per, "%Y-%m-%d"))
    colours = (COLOURS * 2)[: wide.shape[1]]
    if args.kind == "heatmap":
        image = axes.imshow(wide.fillna(0).T, aspect="auto", cmap="viridis")
        axes.set_xticks(range(len(wide)), [str(v)[:20] for v in wide.index], rotation=45, ha="right")
        axes.set_yticks(range(wide.shape[1]), [str(v)[:30] for v in wide.columns])
        axes.figure.colorbar(image, ax=axes, label=label_of(args))
        return
    kind = {"stacked": "bar"}.get(args.kind, args.kind)
    options = {"stacked": args.kind in ("stacked", "area")} if kind in ("bar", "area") else {}
    if kind == "line" and len(wide) < 40:
        options["marker"] = "o"
    wide.plot(kind=kind, ax=axes, color=colours, legend=False, logy=args.log and kind != "barh", logx=args.log and kind == "barh", **options)
    if kind == "bar" and max(len(str(v)) for v in wide.index) * len(wide) > 80:
        axes.tick_params(axis="x", rotation=45)
        for text in axes.get_xticklabels():
            text.set_ha("right")
    elif kind == "bar":
        axes.tick_params(axis="x", rotation=0)
    if wide.shape[1] > 1:
        axes.legend(title=args.by, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")


def draw_raw(axes, table, ys, args):
    if args.kind == "scatter":
        if not args.x or len(ys) != 1:
            raise Problem("scatter needs --x and one column in --y")
        if len(table) > MAX_POINTS:
            table = table.sample(MAX_POINTS, random_state=0)
        groups = list(table.groupby(args.by)) if args.by else [(None, table)]
        if len(groups) > MAX_SERIES:
            raise Problem(f"{len(groups)} values of {args.by} are more than {MAX_SERIES}, and unreadable: use --where")
        for (name, group), colour in zip(groups, COLOURS * 2):
            axes.scatter(group[args.x], group[ys[0]], s=18, alpha=0.7, color=colour, label=name, edgecolors="none")
        if args.by:
            axes.legend(title=args.by, frameon=False, bbox_to_anchor=(1.01, 1), loc="upper left")
        if args.log:
            axes.set_yscale("log")
        return len(table)
    name = ys[0] if ys else args.x
    if not name:
        raise Problem(f"{args.kind} needs --y")
    if args.kind == "hist":
        axes.hist(table[name], bins="auto" if len(table) < 5000 else 60, color=COLOURS[0], edgecolor="white", log=args.log)
        axes.set_xlabel(name)
        return len(table)
    group = args.by or args.x
    parts = [(str(k), v[name]) for k, v in table.groupby(group, sort=False)] if group and group != name else [(name, table[name])]
    if len(parts) > MAX_BARS:
        raise Problem(f"{len(parts)} values of {group} are more than {MAX_BARS}, and unreadable: use --where")
    axes.boxplot([v for _, v in parts], orientation="vertical", patch_artist=True, boxprops={"facecolor": "#BBD6E8"}, medianprops={"color": COLOURS[5]})
    axes.set_xticks(range(1, len(parts) + 1), [k[:25] for k, _ in parts], rotation=45 if len(parts) > 6 else 0)
    return len(table)


def label_of(args):
    name = "rows" if args.agg == "count" and args.kind not in ("scatter", "hist", "box") else args.y or ""
    return f"{name} ({args.unit})" if args.unit else name


def draw(args):
    table, ys, rows = prepare(args)
    figure, axes = plt.subplots(figsize=args.size, dpi=args.dpi, layout="constrained")
    plt.rcParams["axes.prop_cycle"] = plt.cycler(color=COLOURS)
    if args.kind in ("scatter", "hist", "box"):
        drawn = draw_raw(axes, table, ys, args)
    else:
        draw_wide(axes, aggregate(table, ys, args), args)
        drawn = len(table)
    if args.kind not in ("heatmap", "hist"):
        (axes.set_xlabel if args.kind == "barh" else axes.set_ylabel)(label_of(args))
        (axes.set_ylabel if args.kind == "barh" else axes.set_xlabel)(args.x or "")
    if args.title:
        axes.set_title(args.title, loc="left", fontweight="bold")
    if args.kind != "heatmap":
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x" if args.kind == "barh" else "y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    out = args.out or OUTPUTS / f"{args.file.stem}-{args.kind}.{args.format}"
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    plt.close(figure)
    dropped = rows - len(table)
    print(f"{out}: {drawn} of {rows} rows" + (f"; {dropped} left out (no value, no number, or --where)" if dropped else ""))


def size(text):
    try:
        width, height = (float(part) for part in text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError("write 10x6, in inches") from None
    if not (1 <= width <= 40 and 1 <= height <= 40):
        raise argparse.ArgumentTypeError("each side has 1 to 40 inches")
    return width, height


def main(argv=None):
    parser = argparse.ArgumentParser(description="Draw a chart of a table.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("file", type=Path)
    for name, text in (("x", "column of the axis"), ("y", "columns of the figures, with commas"), ("by", "column of the series"), ("where", "rows to keep"), ("sheet", "of an Excel file"), ("title", "above the chart"), ("unit", "of the figures")):
        parser.add_argument("--" + name, help=text)
    parser.add_argument("--agg", default="sum", choices=("sum", "mean", "median", "min", "max", "count"))
    parser.add_argument("--per", choices=PER, help="put dates together")
    parser.add_argument("--top", type=int, choices=range(1, 61), metavar="1..60", help="keep the largest")
    parser.add_argument("--sort", action="store_true", help="by value")
    parser.add_argument("--log", action="store_true", help="a logarithmic axis")
    parser.add_argument("--format", default="png", choices=("png", "svg", "pdf"))
    parser.add_argument("--size", type=size, default=(9.0, 5.0), metavar="WxH", help="inches (default 9x5)")
    parser.add_argument("--dpi", type=int, default=120, choices=range(50, 401), metavar="50..400")
    parser.add_argument("--out", type=Path, help=f"default: {OUTPUTS}/NAME-KIND.png")
    args = parser.parse_args(argv)
    try:
        draw(args)
    except (Problem, OSError, ValueError) as err:
        print(f"chart: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
