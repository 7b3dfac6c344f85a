#!/usr/bin/env python3
"""Render a document as pictures of its pages. See ../SKILL.md."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_FILE = 64 << 20
KINDS = (".docx", ".doc", ".odt", ".rtf", ".pptx", ".odp", ".xlsx", ".ods", ".pdf")


class Problem(Exception):
    """What the caller has to put right."""


def run(*command, timeout=170):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    if done.returncode:
        raise Problem(f"{command[0]}: " + (done.stderr.strip() or done.stdout.strip())[:500])
    return done.stdout


def pdf_of(source, folder):
    if source.suffix.lower() == ".pdf":
        return source
    run("soffice", "--headless", "--convert-to", "pdf", "--outdir", folder, str(source))
    made = Path(folder, source.stem + ".pdf")
    if not made.is_file():
        raise Problem(f"LibreOffice cannot read {source.name}")
    return made


def pages_of(text, count):
    """"2-4" as (2, 4)."""
    first, _, last = text.partition("-")
    try:
        first, last = int(first), int(last or first)
    except ValueError:
        raise Problem(f"--pages {text}: write 3 or 2-4") from None
    if not 1 <= first <= last or first > count:
        raise Problem(f"--pages {text}: the document has the pages 1 to {count}")
    return first, min(last, count)


def render(args):
    source = args.file
    if not source.is_file():
        raise Problem(f"there is no file {source}")
    if source.suffix.lower() not in KINDS:
        raise Problem(f"{source.name}: it renders " + ", ".join(KINDS))
    if source.stat().st_size > MAX_FILE:
        raise Problem(f"{source} has more than {MAX_FILE >> 20} MiB")
    with tempfile.TemporaryDirectory() as folder:
        pdf = pdf_of(source, folder)
        facts = dict(line.split(":", 1) for line in run("pdfinfo", str(pdf)).splitlines() if ":" in line)
        count = int(facts["Pages"])
        first, last = pages_of(args.pages, count) if args.pages else (1, min(count, args.most))
        args.out.mkdir(parents=True, exist_ok=True)
        run("pdftoppm", "-r", str(args.dpi), "-f", str(first), "-l", str(last), "-png", str(pdf), str(Path(folder, "page")))
        pictures = []
        for number, picture in zip(range(first, last + 1), sorted(Path(folder).glob("page*.png"))):
            to = args.out / f"{source.stem}-{number}.png"
            shutil.copyfile(picture, to)
            pictures.append((number, to))
        if args.pdf and pdf != source:
            shutil.copyfile(pdf, args.out / (source.stem + ".pdf"))
        print(f"{source.name}: {count} pages, {facts.get('Page size', '').strip()}")
        for number, to in pictures:
            words = len(run("pdftotext", "-f", str(number), "-l", str(number), str(pdf), "-").split())
            print(f"page {number}: {words} words, {to}")
        if last - first + 1 < count and not args.pages:
            print(f"the pages after {last} are not rendered: ask for them with --pages {last + 1}-{count}")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Render a document as pictures of its pages.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--pages", help="3, or 2-4 (default: the first --most pages)")
    parser.add_argument("--most", type=int, default=10, help="how many pages at most without --pages (default 10)")
    parser.add_argument("--dpi", type=int, default=80, choices=range(30, 301), metavar="30..300", help="default 80")
    parser.add_argument("--pdf", action="store_true", help="keep the PDF, too")
    parser.add_argument("--out", type=Path, default=OUTPUTS, help=f"folder (default {OUTPUTS})")
    args = parser.parse_args(argv)
    try:
        render(args)
    except subprocess.TimeoutExpired as err:
        print(f"render: {err.cmd[0]} took more than {err.timeout:.0f} seconds", file=sys.stderr)
        return 2
    except (Problem, OSError, KeyError, ValueError) as err:
        print(f"render: {err}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
