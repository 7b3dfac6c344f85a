#!/usr/bin/env python3
"""Profile CSV files: one pass, standard library only. See ../SKILL.md."""

import argparse
import csv
import html
import io
import json
import math
import re
import sys
from collections import Counter
from datetime import datetime
from functools import lru_cache
from pathlib import Path

UPLOADS = Path("/mnt/user-data/uploads")
OUTPUTS = Path("/mnt/user-data/outputs")
MAX_DISTINCT = 100_000
MAX_NUMBERS = 200_000  # kept of a column for its quantiles; beyond it every k-th is kept
MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}
DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")  # beside ISO 8601

csv.field_size_limit(16 * 1024 * 1024)


class Column:
    """What is known of one column so far."""

    def __init__(self, name):
        self.name = name
        self.rows = self.missing = 0
        self.counts = Counter()
        self.overflow = False
        self.kinds = Counter()
        self.numbers, self.stride, self.seen = [], 1, 0
        self.total, self.low, self.high = 0.0, math.inf, -math.inf
        self.dates = [None, None]
        self.longest = 0

    def add(self, text):
        text = text.strip()
        self.rows += 1
        if text.lower() in MISSING:
            self.missing += 1
            return
        self.longest = max(self.longest, len(text))
        if text in self.counts or len(self.counts) < MAX_DISTINCT:
            self.counts[text] += 1
        else:
            self.overflow = True
        self.classify(text)

    def classify(self, text):
        kind, value = kind_of(text)
        self.kinds[kind] += 1
        if kind in ("integer", "number"):
            self.add_number(value)
        elif kind == "date":
            low, high = self.dates
            self.dates = [value if low is None else min(low, value), value if high is None else max(high, value)]

    def add_number(self, number):
        self.total += number
        self.low, self.high = min(self.low, number), max(self.high, number)
        if self.seen % self.stride == 0:
            self.numbers.append(number)
            if len(self.numbers) > MAX_NUMBERS:
                self.numbers, self.stride = self.numbers[::2], self.stride * 2
        self.seen += 1

    @property
    def type(self):
        present = self.rows - self.missing
        if present == 0:
            return "empty"
        if self.kinds["code"] and self.kinds["code"] + self.kinds["integer"] == present:
            return "text"
        numeric = self.kinds["integer"] + self.kinds["number"]
        if numeric == present:
            return "number" if self.kinds["number"] else "integer"
        kind, count = self.kinds.most_common(1)[0]
        return kind if count == present else "mixed" if count < 0.95 * present else kind

    def summary(self, top):
        out = {
            "name": self.name,
            "type": self.type,
            "missing": self.missing,
            "distinct": len(self.counts),
            "distinct_is_lower_bound": self.overflow,
            "top": [{"value": v, "count": n} for v, n in self.counts.most_common(top)],
        }
        if self.seen and self.type != "text":
            ordered = sorted(self.numbers)
            out.update(
                min=self.low,
                max=self.high,
                mean=self.total / self.seen,
                quantiles={f"p{q}": ordered[min(len(ordered) - 1, len(ordered) * q // 100)] for q in (5, 25, 50, 75, 95)},
                histogram=histogram(ordered, self.low, self.high),
            )
        elif self.dates[0]:
            out.update(min=self.dates[0], max=self.dates[1])
        return out


NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+|\d*\.\d+|\d{1,3}(,\d{3})+\.\d*|\d+\.)([eE][+-]?\d{1,3})?", re.ASCII)
CODE = re.compile(r"0\d+", re.ASCII)  # 00501: a postcode or an article number, not a quantity


@lru_cache(maxsize=MAX_DISTINCT)
def kind_of(text):
    """("integer" or "number", float), ("date", ISO text), ("code", None), ("boolean", None) or ("text", None)."""
    if CODE.fullmatch(text):
        return "code", None
    if NUMBER.fullmatch(text):
        value = float(text.replace(",", ""))
        if math.isfinite(value):
            return ("number" if "." in text or "e" in text.lower() else "integer"), value
    if text.lower() in ("true", "false", "yes", "no"):
        return "boolean", None
    day = as_date(text)
    return ("date", day) if day else ("text", None)


ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{3}|\.\d{6})?)?)?", re.ASCII)
OTHER_DATE = re.compile(r"\d{1,2}[./]\d{1,2}[./]\d{4}", re.ASCII)


def as_date(text):
    if ISO_DATE.fullmatch(text):
        try:
            return datetime.fromisoformat(text).isoformat()
        except ValueError:
            return None
    for fmt in DATE_FORMATS if OTHER_DATE.fullmatch(text) else ():
        try:
            return datetime.strptime(text, fmt).isoformat()
        except ValueError:
            continue
    return None


def histogram(ordered, low, high, bins=20):
    if low == high:
        return [{"from": low, "to": high, "count": len(ordered)}]
    width = (high - low) / bins
    counts = [0] * bins
    for number in ordered:
        counts[min(bins - 1, int((number - low) / width))] += 1
    return [{"from": low + i * width, "to": low + (i + 1) * width, "count": n} for i, n in enumerate(counts)]


def detect_encoding(path):
    with open(path, "rb") as f:
        head = f.read(1 << 20)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    utf8 = "utf-8-sig" if head.startswith(b"\xef\xbb\xbf") else "utf-8"
    for encoding in (utf8, "cp1252"):
        try:
            head.decode(encoding)
            return encoding
        except UnicodeDecodeError as err:
            if encoding == utf8 and err.start > len(head) - 4 and len(head) == 1 << 20:
                return encoding  # a character cut by the end of what was read
    return "latin-1"


def detect_delimiter(path, encoding):
    """The delimiter that splits the first rows into the most even table (csv.Sniffer needs seconds for some files)."""
    with open(path, encoding=encoding, errors="replace", newline="") as f:
        sample = f.read(64 * 1024)
    default = "\t" if path.suffix.lower() == ".tsv" else ","
    best, best_score = default, (0, 0)
    for delimiter in (default, *(d for d in ",;\t|" if d != default)):
        widths = []
        try:
            for record in csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter):
                if record:
                    widths.append(len(record))
                if len(widths) == 100:
                    break
        except csv.Error:
            continue
        if len(widths) > 2 and len(sample) == 64 * 1024:
            widths.pop()  # perhaps cut
        if not widths or widths[0] < 2:
            continue  # the header must be split
        score = (widths.count(widths[0]) / len(widths), widths[0])
        if score > best_score:
            best, best_score = delimiter, score
    return best


def profile(path, top=5):
    encoding = detect_encoding(path)
    delimiter = detect_delimiter(path, encoding)
    columns, rows, ragged = None, 0, 0
    with open(path, encoding=encoding, errors="replace", newline="") as f:
        for record in csv.reader(f, delimiter=delimiter):
            if not record:
                continue
            if columns is None:
                columns = [Column(name.strip() or f"column_{i + 1}") for i, name in enumerate(record)]
                continue
            rows += 1
            if len(record) != len(columns):
                ragged += 1
            for column, text in zip(columns, record + [""] * (len(columns) - len(record))):
                column.add(text)
    if columns is None:
        raise ValueError("is empty")
    result = {
        "file": path.name,
        "encoding": encoding,
        "delimiter": delimiter,
        "rows": rows,
        "ragged_rows": ragged,
        "columns": [c.summary(top) for c in columns],
    }
    result["notes"] = notes(result, columns)
    return result


def notes(result, columns):
    rows, found = result["rows"], []
    if result["ragged_rows"]:
        found.append(f"{result['ragged_rows']} rows have another number of fields than the header.")
    for c in columns:
        present = c.rows - c.missing
        if rows and c.missing > rows / 2:
            found.append(f"`{c.name}` is missing in {c.missing} of {rows} rows.")
        if c.type == "mixed":
            found.append(f"`{c.name}` mixes " + ", ".join(f"{n} {k}" for k, n in c.kinds.most_common()) + ".")
        if c.type == "text" and present and c.kinds["code"]:
            found.append(f"`{c.name}` has numbers with leading zeros: keep it as text.")
        if present > 1 and not c.overflow and len(c.counts) == present and c.type in ("integer", "text"):
            found.append(f"`{c.name}` is different in every row: an identifier?")
        if present > 1 and len(c.counts) == 1:
            found.append(f"`{c.name}` has only one value.")
    return found


def number(value):
    if not isinstance(value, (int, float)):
        return str(value)
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.4g}"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")[:60]


def markdown(result):
    delimiter = {"\t": "tab"}.get(result["delimiter"], result["delimiter"])
    lines = [
        f"# {result['file']}",
        "",
        f"{result['rows']} rows, {len(result['columns'])} columns; delimiter `{delimiter}`, encoding {result['encoding']}.",
        "",
        "| column | type | missing | distinct | min | median | mean | max | most frequent |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for c in result["columns"]:
        top = ", ".join(f"{cell(t['value'])} ({t['count']})" for t in c["top"][:3])
        more = "≥ " if c["distinct_is_lower_bound"] else ""
        values = [c.get("min", ""), c.get("quantiles", {}).get("p50", ""), c.get("mean", ""), c.get("max", "")]
        lines.append(f"| {cell(c['name'])} | {c['type']} | {c['missing']} | {more}{c['distinct']} | " + " | ".join(cell(number(v)) for v in values) + f" | {top} |")
    if result["notes"]:
        lines += ["", "## Notes", ""] + [f"- {n}" for n in result["notes"]]
    return "\n".join(lines) + "\n"


def bars(values):
    """An SVG of horizontal bars: [(label, count)]."""
    most = max((n for _, n in values), default=0) or 1
    out = [f'<svg viewBox="0 0 420 {len(values) * 16 + 4}" role="img">']
    for i, (label, n) in enumerate(values):
        y = i * 16
        out.append(
            f'<text x="150" y="{y + 12}" text-anchor="end">{html.escape(str(label)[:24])}</text>'
            f'<rect x="156" y="{y + 2}" width="{max(1, 220 * n // most)}" height="12"/>'
            f'<text x="{160 + max(1, 220 * n // most)}" y="{y + 12}">{n}</text>'
        )
    return "".join(out) + "</svg>"


def page(result):
    parts = []
    for c in result["columns"]:
        if "histogram" in c:
            values = [(f"{number(b['from'])} – {number(b['to'])}", b["count"]) for b in c["histogram"]]
        else:
            values = [(t["value"], t["count"]) for t in c["top"]]
        facts = f"{c['type']}, {c['missing']} missing, {c['distinct']} distinct"
        parts.append(f"<section><h2>{html.escape(c['name'])}</h2><p>{html.escape(facts)}</p>{bars(values)}</section>")
    return (
        '<!doctype html><meta charset="utf-8"><title>' + html.escape(result["file"]) + "</title>"
        "<style>body{font:14px system-ui;margin:2em;color:#222}section{display:inline-block;width:440px;vertical-align:top;margin:0 1em 1em 0}"
        "h2{font-size:15px;margin:0}p{margin:.2em 0 .5em;color:#666}svg{width:100%}text{font-size:10px;fill:#444}rect{fill:#4a7fb5}</style>"
        f"<h1>{html.escape(result['file'])}</h1><p>{result['rows']} rows</p>" + "".join(parts) + "\n"
    )


def inputs(names):
    if names:
        return [Path(n) for n in names]
    return sorted(p for p in UPLOADS.glob("*") if p.suffix.lower() in (".csv", ".tsv") and p.is_file())


def main(argv=None):
    parser = argparse.ArgumentParser(description="Profile CSV files into a Markdown report, JSON and an HTML page with charts.")
    parser.add_argument("file", nargs="*", help=f"default: all .csv and .tsv in {UPLOADS}")
    parser.add_argument("--out", type=Path, default=OUTPUTS, help=f"folder for the results (default {OUTPUTS})")
    parser.add_argument("--top", type=int, default=5, help="how many frequent values a column (default 5)")
    args = parser.parse_args(argv)
    files = inputs(args.file)
    if not files:
        print(f"csv-profile: no .csv or .tsv file in {UPLOADS}; upload one or name a file", file=sys.stderr)
        return 2
    failed, used = 0, set()
    for path in files:
        try:
            result = profile(path, args.top)
            args.out.mkdir(parents=True, exist_ok=True)
            name = path.stem if path.stem not in used else path.name  # a.csv beside a.tsv
            used.add(name)
            for ending, text in ((".profile.md", markdown(result)), (".profile.json", json.dumps(result, indent=1) + "\n"), (".profile.html", page(result))):
                (args.out / (name + ending)).write_text(text, encoding="utf-8")
        except (OSError, ValueError, csv.Error) as err:
            print(f"csv-profile: {path.name}: {err}", file=sys.stderr)
            failed += 1
            continue
        print(f"{path.name}: {result['rows']} rows, {len(result['columns'])} columns; see {args.out / name}.profile.md, .json, .html")
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
