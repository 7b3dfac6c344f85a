#!/usr/bin/env python3
"""Make an Excel workbook of CSV files. See ../SKILL.md."""

import argparse
import csv
import datetime
import re
import sys
from pathlib import Path

import openpyxl
from openpyxl.chart import BarChart, Reference
from openpyxl.styles import Alignment, Font, PatternFill
from openpyxl.utils import get_column_letter

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_FILE = 64 << 20
MAX_ROWS = 1_048_576  # of one sheet, in Excel
MAX_CELLS = 2_000_000  # of the workbook: more do not fit into the memory of a sandbox
NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)?(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
CODE = re.compile(r"[+-]?0\d+", re.ASCII)

csv.field_size_limit(1 << 20)


class Problem(Exception):
    """What the caller has to put right."""


def typed(text):
    """The value of a cell; what could lose something as a number stays a text."""
    stripped = text.strip()
    if stripped == "":
        return None
    digits = sum(c.isdigit() for c in stripped)
    if NUMBER.fullmatch(stripped) and 0 < digits <= 15 and not CODE.fullmatch(stripped):
        plain = stripped.replace(",", "")
        return float(plain) if "." in plain or "e" in plain.lower() else int(plain)
    if re.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?", stripped, re.ASCII):
        try:
            value = datetime.datetime.fromisoformat(stripped)
            return value if len(stripped) > 10 else value.date()
        except ValueError:
            return text
    return {"true": True, "yes": True, "false": False, "no": False}.get(stripped.lower(), text)


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
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t|", key=first.count)
    rows = [row for row in csv.reader(text.splitlines(keepends=True), delimiter=delimiter) if row]
    if not rows:
        raise Problem(f"{path} is empty")
    if len(rows) >= MAX_ROWS:
        raise Problem(f"{path} has {len(rows)} rows, at most {MAX_ROWS - 1} fit into a sheet")
    return rows


def title_of(path, taken):
    """A sheet's name: at most 31 characters, none of []:*?/\\, each once."""
    base = re.sub(r"[\[\]:*?/\\]", " ", path.stem).strip(" '")[:31] or "sheet"
    title, number = base, 2
    while title.lower() in taken:
        end = f" {number}"
        title, number = base[: 31 - len(end)] + end, number + 1
    taken.add(title.lower())
    return title


def column(header, name, sheet):
    if name not in header:
        raise Problem(f"the sheet {sheet} has no column {name!r}; it has: " + ", ".join(header)[:500])
    return header.index(name) + 1


def fill(sheet, rows, args):
    header = [name.strip() or f"column {i + 1}" for i, name in enumerate(rows[0])]
    width = [len(name) + 3 for name in header]
    for i, name in enumerate(header, 1):
        cell = sheet.cell(1, i, name)
        cell.data_type = "s"
        cell.font, cell.fill = Font(bold=True, color="FFFFFF"), PatternFill("solid", start_color="2F5D8A")
        cell.alignment = Alignment(vertical="center", wrap_text=True)
    for r, row in enumerate(rows[1:], 2):
        for c, text in enumerate(row[: len(header)], 1):
            value = typed(text)
            if value is None:
                continue
            cell = sheet.cell(r, c, value)
            if isinstance(value, str):
                cell.data_type = "s"  # "=1+1" in the data is a text
            width[c - 1] = max(width[c - 1], min(len(text) + 2, 60))
    last = len(rows)
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = f"A1:{get_column_letter(len(header))}{last}"
    for i, w in enumerate(width, 1):
        sheet.column_dimensions[get_column_letter(i)].width = w
    for name, number_format in args.formats.items():
        if name in header:
            at = header.index(name) + 1
            for r in range(2, last + 2):
                sheet.cell(r, at).number_format = number_format
    totals = [name for name in args.total if name in header]
    for name in totals:
        letter = get_column_letter(header.index(name) + 1)
        cell = sheet[f"{letter}{last + 1}"]
        cell.value, cell.font = f"=SUM({letter}2:{letter}{last})", Font(bold=True)
    if totals and header[0] not in totals:
        sheet.cell(last + 1, 1, "Total").font = Font(bold=True)
    return header


def draw(sheet, header, x, y, last):
    chart = BarChart()
    at = column(header, y, sheet.title)
    chart.add_data(Reference(sheet, min_col=at, min_row=1, max_row=last), titles_from_data=True)
    chart.set_categories(Reference(sheet, min_col=column(header, x, sheet.title), min_row=2, max_row=last))
    chart.title, chart.legend = y, None
    sheet.add_chart(chart, f"{get_column_letter(len(header) + 2)}2")


def build(args):
    tables = [(path, read(path)) for path in args.file]
    cells = sum(len(rows) * len(rows[0]) for _, rows in tables)
    if cells > MAX_CELLS:
        raise Problem(f"the files have {cells} cells together, at most {MAX_CELLS}")
    known = {name.strip() for _, rows in tables for name in rows[0]}
    for name in [*args.total, *args.formats]:
        if name not in known:
            raise Problem(f"no file has a column {name!r}; there are: " + ", ".join(sorted(known))[:500])
    book, taken, headers = openpyxl.Workbook(), set(), {}
    book.remove(book.active)
    for path, rows in tables:
        sheet = book.create_sheet(title_of(path, taken))
        headers[sheet.title] = fill(sheet, rows, args), len(rows)
    for wanted in args.chart:
        parts = wanted.split(":")
        if len(parts) != 3 or parts[0] not in headers:
            raise Problem(f"--chart {wanted}: write SHEET:X:Y, with a sheet of: " + ", ".join(headers))
        header, last = headers[parts[0]]
        draw(book[parts[0]], header, parts[1], parts[2], last)
    out = args.out or OUTPUTS / (args.file[0].stem + ".xlsx")
    out.parent.mkdir(parents=True, exist_ok=True)
    book.save(out)
    print(f"{out}: " + ", ".join(f"{title} ({last - 1} rows, {len(header)} columns)" for title, (header, last) in headers.items()))


def number_format(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("write COLUMN=FORMAT, such as amount=#,##0.00")
    return name, value


def main(argv=None):
    parser = argparse.ArgumentParser(description="Make an Excel workbook of CSV files, a sheet of each.")
    parser.add_argument("file", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, help=f"default: {OUTPUTS}/NAME.xlsx")
    parser.add_argument("--total", action="append", default=[], metavar="COLUMN", help="add its sum below; may be given again")
    parser.add_argument("--format", action="append", default=[], type=number_format, metavar="COLUMN=FORMAT", help="a number format of Excel")
    parser.add_argument("--chart", action="append", default=[], metavar="SHEET:X:Y", help="a column chart beside the data")
    args = parser.parse_args(argv)
    args.formats = dict(args.format)
    try:
        build(args)
    except (Problem, OSError, csv.Error) as err:
        print(f"build: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
