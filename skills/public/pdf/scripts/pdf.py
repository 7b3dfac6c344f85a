#!/usr/bin/env python3
"""Work with PDF files: info, text, tables, pages, merge, fields, fill. See ../SKILL.md."""

import argparse
import csv
import json
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import pypdf
from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_FILE = 256 << 20
MAX_PAGES = 5000
MAX_PRINTED = 40_000
MAX_TABLES = 200
SCAN_BELOW = 20  # characters of a page that is taken for a picture

logging.getLogger("pypdf").setLevel(logging.ERROR)
logging.getLogger("pdfminer").setLevel(logging.ERROR)


class Problem(Exception):
    """What the caller has to put right."""


def open_pdf(path, password=None):
    if not path.is_file():
        raise Problem(f"there is no file {path}")
    if path.stat().st_size > MAX_FILE:
        raise Problem(f"{path} has more than {MAX_FILE >> 20} MiB")
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(password or ""):
            raise Problem(f"{path.name} is encrypted: ask the user for the password, and give it as --password")
        count = len(reader.pages)
    except (PyPdfError, DependencyError, ValueError, KeyError, RecursionError) as err:
        raise Problem(f"{path.name} is not a PDF that can be read: {err}") from None
    if count > MAX_PAGES:
        raise Problem(f"{path.name} has {count} pages, at most {MAX_PAGES}: take some with qpdf first")
    return reader


def numbers(text, count):
    """"1-3,7" as page numbers, in that order; all pages without a text."""
    if not text:
        return list(range(1, count + 1))
    pages = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            first, last = int(first), int(last) if last else count if dash else int(first)
        except ValueError:
            raise Problem(f"pages {text!r}: write them as 1-3,7") from None
        if not 1 <= first <= last <= count:
            raise Problem(f"pages {part.strip()!r}: the file has the pages 1 to {count}")
        pages += range(first, last + 1)
    if len(pages) > MAX_PAGES:
        raise Problem(f"{len(pages)} pages are more than {MAX_PAGES}")
    return pages


def output(args, source, ending):
    out = args.out or OUTPUTS / (source.stem + ending)
    if out.exists() and out.samefile(source):
        raise Problem(f"{out} is the file itself: choose another name with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def save(writer, out):
    with open(out, "wb") as f:
        writer.write(f)


def run(*command, timeout=120):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    if done.returncode:
        raise Problem(f"{command[0]}: {done.stderr.strip()[:300]}")
    return done.stdout


def poppler_text(args, first, last):
    """The text of pages as it is laid out, a string each."""
    password = ("-upw", args.password) if args.password else ()
    text = run("pdftotext", "-layout", *password, "-f", str(first), "-l", str(last), str(args.file), "-")
    pages = text.split("\f")
    return (pages + [""] * (last - first + 1))[: last - first + 1]


def ranges(pages):
    """The runs of consecutive pages: one call of a program each."""
    start = 0
    for i in range(1, len(pages) + 1):
        if i == len(pages) or pages[i] != pages[i - 1] + 1:
            yield pages[start], pages[i - 1]
            start = i


def texts(args, pages):
    for first, last in ranges(pages):
        yield from zip(range(first, last + 1), poppler_text(args, first, last))


def info(args):
    reader = open_pdf(args.file, args.password)
    count = len(reader.pages)
    box = reader.pages[0].mediabox if count else None
    print(f"{args.file.name}: {count} pages" + (f", the first {float(box.width):.0f} x {float(box.height):.0f} pt" if box else "") + (", encrypted" if reader.is_encrypted else ""))
    for key in ("title", "author", "subject", "creator"):
        value = getattr(reader.metadata, key, None) if reader.metadata else None
        if value:
            print(f"{key}: {str(value)[:200]}")
    scans, words = [], 0
    for number, text in texts(args, list(range(1, count + 1))):
        words += len(text.split())
        if len(text.strip()) < SCAN_BELOW and "/XObject" in (reader.pages[number - 1].get("/Resources") or {}):
            scans.append(number)
    print(f"words: {words}")
    if scans:
        print(f"pages that are pictures (read them with text --ocr): {', '.join(map(str, scans[:50]))}" + (" …" if len(scans) > 50 else ""))
    fields = reader.get_fields() or {}
    if fields:
        print(f"form fields: {len(fields)}")
    if reader.outline:
        print(f"bookmarks: {sum(not isinstance(item, list) for item in reader.outline)} at the top")
    if reader.attachments:
        print("attachments: " + ", ".join(list(reader.attachments)[:20]))


def ocr(args, number):
    with tempfile.TemporaryDirectory() as folder:
        password = ("-upw", args.password) if args.password else ()
        run("pdftoppm", *password, "-r", "200", "-gray", "-png", "-singlefile", "-f", str(number), "-l", str(number), str(args.file), f"{folder}/page")
        return run("tesseract", f"{folder}/page.png", "stdout", "-l", args.language)


def text(args):
    reader = open_pdf(args.file, args.password)
    pages = numbers(args.pages, len(reader.pages))
    out, left, read = output(args, args.file, ".txt"), MAX_PRINTED, 0
    with open(out, "w", encoding="utf-8") as f:
        for number, words in texts(args, pages):
            note = ""
            if args.ocr and len(words.strip()) < SCAN_BELOW:
                words, note, read = ocr(args, number), " (OCR)", read + 1
            block = f"--- page {number}{note} ---\n{words.rstrip()}\n"
            f.write(block)
            if left > 0:
                print(block[:left], end="")
                if len(block) > left:
                    print(f"\n[cut: the whole text is in {out}]")
                left -= len(block)
    print(f"\n{out}: {len(pages)} pages" + (f", {read} by OCR" if read else ""))


def tables(args):
    import pdfplumber

    reader = open_pdf(args.file, args.password)
    pages = numbers(args.pages, len(reader.pages))
    folder = args.out or OUTPUTS
    folder.mkdir(parents=True, exist_ok=True)
    found = 0
    with pdfplumber.open(args.file, password=args.password or "") as document:
        for number in pages:
            page = document.pages[number - 1]
            drawn = page.extract_tables()
            for at, rows in enumerate(drawn or page.extract_tables({"vertical_strategy": "text", "horizontal_strategy": "text", "min_words_vertical": 3}), 1):
                rows = [[(cell or "").replace("\n", " ").strip() for cell in row] for row in rows]
                rows = [row for row in rows if any(row)]
                if len(rows) < 2 or max(map(len, rows)) < 2:
                    continue
                to = folder / f"{args.file.stem}-p{number}-{at}.csv"
                with open(to, "w", encoding="utf-8", newline="") as f:
                    csv.writer(f).writerows(rows)
                how = "" if drawn else " (found by alignment: check it)"
                print(f"{to}: page {number}, {len(rows)} rows, {max(map(len, rows))} columns{how}")
                if (found := found + 1) == MAX_TABLES:
                    print(f"that are {MAX_TABLES} tables: ask for fewer pages with --pages")
                    return
            page.close()  # what it keeps of a page would fill the memory
    if not found:
        print("no tables found; of a scan there are none: use text --ocr")


def pages(args):
    reader = open_pdf(args.file, args.password)
    wanted = numbers(args.wanted, len(reader.pages))
    if args.rotate % 90:
        raise Problem("--rotate: 90, 180 or 270")
    out, writer = output(args, args.file, "-pages.pdf"), pypdf.PdfWriter()
    for number in wanted:
        page = writer.add_page(reader.pages[number - 1])
        if args.rotate:
            page.rotate(args.rotate)
    save(writer, out)
    print(f"{out}: {len(wanted)} pages")


def merge(args):
    writer = pypdf.PdfWriter()
    for path in [args.file, *args.more]:
        writer.append(open_pdf(path, args.password))
        if len(writer.pages) > MAX_PAGES:
            raise Problem(f"the files have more than {MAX_PAGES} pages together")
    out = output(args, args.file, "-merged.pdf")
    if any(out.exists() and out.samefile(path) for path in args.more):
        raise Problem(f"{out} is one of the files: choose another name with --out")
    save(writer, out)
    print(f"{out}: {len(writer.pages)} pages of {1 + len(args.more)} files")


def choices(field):
    """What a field takes: the states of a box, the options of a list; [] for any text."""
    if field.get("/FT") == "/Btn":
        return [str(state) for state in field.get("/_States_", [])]
    options = field.get("/Opt") or []
    return [str(option[1] if isinstance(option, list) else option) for option in options] if field.get("/FT") == "/Ch" else []


def form_of(reader, name):
    found = {key: field for key, field in (reader.get_fields() or {}).items() if field.get("/FT")}
    if not found:
        raise Problem(f"{name} has no form fields: write on it with reportlab and merge the pages")
    return found


def fields(args):
    for name, field in form_of(open_pdf(args.file, args.password), args.file.name).items():
        kind = {"/Tx": "text", "/Btn": "box", "/Ch": "choice", "/Sig": "signature"}.get(field.get("/FT"), "other")
        print("\t".join([name, kind, str(field.get("/V", "")), " | ".join(choices(field))]))


def fill(args):
    reader = open_pdf(args.file, args.password)
    form = form_of(reader, args.file.name)
    values = json.loads(args.values.read_text("utf-8"))
    if not isinstance(values, dict) or not all(isinstance(v, (str, int, float)) for v in values.values()):
        raise Problem(f"{args.values} has to be a JSON object of fields and texts")
    for name, value in values.items():
        if name not in form:
            raise Problem(f"the form has no field {name!r}; it has: " + ", ".join(form)[:1000])
        allowed = choices(form[name])
        if allowed and str(value) not in allowed:
            raise Problem(f"{name!r} takes one of: " + ", ".join(allowed))
    out, writer = output(args, args.file, "-filled.pdf"), pypdf.PdfWriter()
    writer.append(reader)
    for page in writer.pages:
        writer.update_page_form_field_values(page, {k: str(v) for k, v in values.items()}, auto_regenerate=False)
    writer.set_need_appearances_writer(True)
    save(writer, out)
    empty = [name for name, field in form.items() if name not in values and not field.get("/V")]
    print(f"{out}: {len(values)} fields filled" + (f"; empty: {', '.join(empty)[:500]}" if empty else ""))


def main(argv=None):
    parser = argparse.ArgumentParser(description="Work with PDF files.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for action, about in ((info, "pages, scans, form"), (text, "the text by page"), (tables, "tables as CSV"), (pages, "some pages as a new file"), (merge, "several files as one"), (fields, "the fields of a form"), (fill, "fill a form in")):
        sub = commands.add_parser(action.__name__, help=about, description=about)
        sub.set_defaults(action=action)
        sub.add_argument("file", type=Path)
        sub.add_argument("--password")
        if action in (text, tables):
            sub.add_argument("--pages", help="such as 1-3,7 (default: all)")
        if action is text:
            sub.add_argument("--ocr", action="store_true", help="read pages without text by OCR")
            sub.add_argument("--language", default="eng", help="of the OCR (default eng)")
        if action is pages:
            sub.add_argument("wanted", metavar="PAGES", help="such as 1-3,7, in the order that they shall have")
            sub.add_argument("--rotate", type=int, default=0, help="degrees to the right")
        if action is merge:
            sub.add_argument("more", type=Path, nargs="+", metavar="FILE")
        if action is fill:
            sub.add_argument("values", type=Path, help="a JSON object of fields and texts")
        if action not in (info, fields):
            sub.add_argument("--out", type=Path, help=f"default: in {OUTPUTS}")
    args = parser.parse_args(argv)
    try:
        args.action(args)
    except subprocess.TimeoutExpired as err:
        print(f"pdf: {err.cmd[0]} took more than {err.timeout:.0f} seconds", file=sys.stderr)
        return 2
    except json.JSONDecodeError as err:
        print(f"pdf: {args.values}: line {err.lineno}: {err.msg}", file=sys.stderr)
        return 2
    except (Problem, OSError, PyPdfError, FileNotDecryptedError, UnicodeDecodeError) as err:
        print(f"pdf: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
