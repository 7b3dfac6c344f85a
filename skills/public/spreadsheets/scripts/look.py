#!/usr/bin/env python3
"""Say what is in an Excel workbook. See ../SKILL.md."""

import argparse
import csv
import datetime
import re
import sys
import zipfile
from collections import Counter
from pathlib import Path

import openpyxl
from openpyxl.utils import get_column_letter
from openpyxl.utils.exceptions import InvalidFileException

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_FILE = 64 << 20
MAX_UNPACKED = 1 << 30
MAX_CELLS = 3_000_000  # looked at in one workbook
MAX_LISTED = 20
ERRORS = ("#REF!", "#DIV/0!", "#NAME?", "#VALUE!", "#N/A", "#NUM!", "#NULL!")


class Problem(Exception):
    """What the caller has to put right."""


def open_book(path, values):
    if not path.is_file():
        raise Problem(f"there is no file {path}")
    if path.stat().st_size > MAX_FILE:
        raise Problem(f"{path} has more than {MAX_FILE >> 20} MiB")
    try:
        with zipfile.ZipFile(path) as package:
            if sum(part.file_size for part in package.infolist()) > MAX_UNPACKED:
                raise Problem(f"{path} has more than {MAX_UNPACKED >> 20} MiB when it is unpacked")
        return openpyxl.load_workbook(path, data_only=values)
    except (zipfile.BadZipFile, InvalidFileException, KeyError, ValueError):
        hint = "; convert it first: soffice --headless --convert-to xlsx FILE" if path.suffix.lower() in (".xls", ".ods") else ""
        raise Problem(f"{path} is not an Excel workbook (.xlsx){hint}") from None


def kind_of(value):
    if isinstance(value, bool):
        return "yes/no"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, (datetime.date, datetime.datetime)):
        return "date"
    if isinstance(value, datetime.time):
        return "time"
    if isinstance(value, str) and value.startswith("=") or not isinstance(value, str):
        return "formula"
    return "text"


def header_row(sheet):
    """The first row, of the first ten, in which most cells are texts and that has the most of them."""
    best, best_filled = 1, 0
    for row in sheet.iter_rows(min_row=1, max_row=min(10, sheet.max_row)):
        filled = [c.value for c in row if c.value is not None]
        if filled and sum(kind_of(v) == "text" for v in filled) > len(filled) / 2 and len(filled) > best_filled:
            best, best_filled = row[0].row, len(filled)
    return best


def relative(formula, cell):
    """A formula with its references as distances: =B2*C2 in D2 and =B3*C3 in D3 are the same."""

    def shift(match):
        column, row = match.group(2), match.group(4)
        if not match.group(1):
            column = f"C[{openpyxl.utils.column_index_from_string(column) - cell.column}]"
        return column + (row if match.group(3) else f"R[{int(row) - cell.row}]")

    return re.sub(r"(\$?)\b([A-Z]{1,3})(\$?)(\d{1,7})\b(?!\()", shift, formula)


def shown(value):
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return text.replace("|", "\\|").replace("\n", " ")[:40]


def describe_column(letter, name, cells):
    kinds, low, high, missing, formulas = Counter(), None, None, 0, Counter()
    for cell in cells:
        if cell.value is None:
            missing += 1
            continue
        kind = kind_of(cell.value)
        kinds[kind] += 1
        if kind == "formula":
            formulas[relative(str(cell.value), cell)] += 1
        elif kind in ("number", "date"):
            try:
                low = cell.value if low is None else min(low, cell.value)
                high = cell.value if high is None else max(high, cell.value)
            except TypeError:  # a date and a number
                pass
    types = ", ".join(f"{kind} {n}" if len(kinds) > 1 else kind for kind, n in kinds.most_common()) or "empty"
    span = f"{shown(low)} to {shown(high)}" if low is not None else ""
    odd = ""
    if len(formulas) > 1:
        usual = formulas.most_common(1)[0][0]
        others = [c.coordinate for c in cells if c.value is not None and kind_of(c.value) == "formula" and relative(str(c.value), c) != usual]
        odd = "formulas differ in " + ", ".join(others[:5]) + (" …" if len(others) > 5 else "")
    return f"| {letter} | {shown(name)} | {types} | {missing} | {span} | {odd} |"


def describe(sheet, rows):
    header = header_row(sheet)
    state = "" if sheet.sheet_state == "visible" else f", {sheet.sheet_state}"
    print(f"\n## {sheet.title}{state}\n\n{sheet.dimensions}: {sheet.max_row} rows, {sheet.max_column} columns; header in row {header}\n")
    print("| column | header | type | missing | range | note |\n|---|---|---|---|---|---|")
    formulas, errors = 0, []
    for column in sheet.iter_cols(min_row=header, max_row=sheet.max_row):
        for cell in column:
            formulas += cell.value is not None and kind_of(cell.value) == "formula"
            if cell.data_type == "e" or cell.value in ERRORS:
                errors.append(f"{cell.coordinate} {cell.value}")
        print(describe_column(get_column_letter(column[0].column), column[0].value if column[0].value is not None else "", column[1:]))
    notes = [f"{formulas} formulas"] if formulas else []
    notes += [f"{len(errors)} errors: " + ", ".join(errors[:MAX_LISTED])] if errors else []
    merged = [str(r) for r in sheet.merged_cells.ranges]
    notes += ["merged: " + ", ".join(merged[:MAX_LISTED])] if merged else []
    notes += [f"{len(sheet._images)} pictures, {len(sheet._charts)} charts"] if sheet._images or sheet._charts else []
    notes += [f"{len(sheet._pivots)} pivot tables"] if sheet._pivots else []
    if notes:
        print("\n" + "\n".join("- " + note for note in notes))
    if rows:
        print()
        for row in sheet.iter_rows(min_row=header, max_row=min(header + rows, sheet.max_row), values_only=True):
            print("\t".join("" if v is None else shown(v) for v in row))


def write_csv(path, book, out):
    out.mkdir(parents=True, exist_ok=True)
    for sheet in book.worksheets:
        to = out / (path.stem + "-" + re.sub(r"[^\w.-]+", "_", sheet.title) + ".csv")
        with open(to, "w", encoding="utf-8", newline="") as f:
            writer = csv.writer(f)
            for row in sheet.iter_rows(values_only=True):
                writer.writerow(["" if v is None else v.isoformat() if hasattr(v, "isoformat") else v for v in row])
        print(f"{to}: {sheet.max_row} rows")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Say what is in an Excel workbook.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--rows", type=int, default=0, help="show so many rows below the header")
    parser.add_argument("--csv", action="store_true", help="write each sheet as CSV: of formulas, the values that were saved")
    parser.add_argument("--out", type=Path, default=OUTPUTS, help=f"folder of the CSV files (default {OUTPUTS})")
    args = parser.parse_args(argv)
    try:
        book = open_book(args.file, values=False)
        cells = sum(sheet.max_row * sheet.max_column for sheet in book.worksheets)
        if cells > MAX_CELLS:
            raise Problem(f"{args.file} has {cells} cells, at most {MAX_CELLS}: read it with openpyxl's read_only=True, sheet by sheet")
        print(f"# {args.file.name}\n\n{len(book.worksheets)} sheets: " + ", ".join(book.sheetnames))
        names = [f"{name} = {defined.attr_text}" for name, defined in book.defined_names.items()]
        if names:
            print("names: " + "; ".join(names[:MAX_LISTED]))
        for sheet in book.worksheets:
            describe(sheet, args.rows)
        if args.csv:
            print()
            write_csv(args.file, open_book(args.file, values=True), args.out)
    except (Problem, OSError) as err:
        print(f"look: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
