#!/usr/bin/env python3
"""Recalculate a workbook with LibreOffice and name the cells that are errors. See ../SKILL.md."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import openpyxl
from openpyxl.utils.exceptions import InvalidFileException

MAX_FILE = 64 << 20
MAX_LISTED = 50
ERRORS = ("#REF!", "#DIV/0!", "#NAME?", "#VALUE!", "#N/A", "#NUM!", "#NULL!")


class Problem(Exception):
    """What the caller has to put right."""


def recalculate(source, out):
    if not source.is_file():
        raise Problem(f"there is no file {source}")
    if source.stat().st_size > MAX_FILE:
        raise Problem(f"{source} has more than {MAX_FILE >> 20} MiB")
    if out.exists() and out.samefile(source):
        raise Problem("--out is the workbook itself: choose another name")
    with tempfile.TemporaryDirectory() as folder:
        # openpyxl keeps formulas without the values that another program saved, so LibreOffice has to compute them.
        plain, made = Path(folder, "plain.xlsx"), Path(folder, "made", "plain.xlsx")
        openpyxl.load_workbook(source).save(plain)
        done = subprocess.run(
            ["soffice", "--headless", "--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(made.parent), str(plain)],
            capture_output=True, text=True, errors="replace", timeout=150,
        )
        if done.returncode or not made.is_file():
            raise Problem(f"LibreOffice cannot read {source.name}: " + done.stderr.strip()[:300])
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(made, out)


def compare(source, out):
    """The number of formulas, and the cells that are errors now."""
    formulas, values = openpyxl.load_workbook(source), openpyxl.load_workbook(out, data_only=True)
    count, errors = 0, []
    for sheet in formulas.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                formula = cell.data_type == "f"
                count += formula
                value = values[sheet.title][cell.coordinate].value if formula else cell.value
                if value in ERRORS:
                    errors.append(f"{sheet.title}!{cell.coordinate}: {value}" + (f"  {getattr(cell.value, 'text', cell.value)}" if formula else ""))
    return count, errors


def main(argv=None):
    parser = argparse.ArgumentParser(description="Recalculate a workbook and name the cells that are errors.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, help="the workbook with values (default: NAME-values.xlsx beside the file)")
    args = parser.parse_args(argv)
    out = args.out or args.file.with_name(args.file.stem + "-values.xlsx")
    try:
        recalculate(args.file, out)
        count, errors = compare(args.file, out)
    except subprocess.TimeoutExpired:
        print("recalc: LibreOffice took more than 150 seconds", file=sys.stderr)
        return 2
    except (Problem, OSError, zipfile.BadZipFile, InvalidFileException, KeyError, ValueError) as err:
        print(f"recalc: {err}", file=sys.stderr)
        return 2
    print(f"{args.file.name}: {count} formulas, {len(errors)} errors; values in {out}")
    for line in errors[:MAX_LISTED]:
        print(line)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
