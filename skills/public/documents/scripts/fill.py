#!/usr/bin/env python3
"""Fill the {{placeholders}} of a Word template. See ../SKILL.md."""

import argparse
import copy
import json
import re
import sys
import zipfile
from pathlib import Path

import docx
from docx.opc.exceptions import PackageNotFoundError
from docx.oxml.ns import qn
from docx.text.paragraph import Paragraph

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_FILE = 64 << 20
MAX_UNPACKED = 512 << 20
MAX_ROWS = 5000  # of one table, after a row was repeated
PLACE = re.compile(r"\{\{\s*([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)?)\s*\}\}")


class Problem(Exception):
    """What the caller has to put right."""


def open_template(path):
    if not path.is_file():
        raise Problem(f"there is no file {path}")
    if path.stat().st_size > MAX_FILE:
        raise Problem(f"{path} has more than {MAX_FILE >> 20} MiB")
    try:
        with zipfile.ZipFile(path) as package:
            if sum(part.file_size for part in package.infolist()) > MAX_UNPACKED:
                raise Problem(f"{path} has more than {MAX_UNPACKED >> 20} MiB when it is unpacked")
        return docx.Document(str(path))
    except (zipfile.BadZipFile, PackageNotFoundError, KeyError, ValueError):
        raise Problem(f"{path} is not a Word document (.docx)") from None


def roots(document):
    """The body, and each header and footer once."""
    yield document.element.body
    seen = set()
    for section in document.sections:
        for part in (section.header, section.footer, section.first_page_header, section.first_page_footer, section.even_page_header, section.even_page_footer):
            if not part.is_linked_to_previous and part.part.partname not in seen:
                seen.add(part.part.partname)
                yield part._element


def paragraphs(root):
    return (Paragraph(p, None) for p in root.iter(qn("w:p")))


def placeholders(document):
    found = {}
    for root in roots(document):
        for paragraph in paragraphs(root):
            for name in PLACE.findall("".join(run.text for run in paragraph.runs)):
                found[name] = found.get(name, 0) + 1
    return found


def replace(paragraph, value_of):
    """Replace in the runs of a paragraph: a placeholder may be spread over several, and takes the look of the first."""
    runs = paragraph.runs
    texts = [run.text for run in runs]
    starts = [sum(map(len, texts[:i])) for i in range(len(texts))]
    lengths = [len(text) for text in texts]
    for match in reversed(list(PLACE.finditer("".join(texts)))):  # what comes before a match keeps its place
        value = value_of(match.group(1))
        if value is None:
            continue
        for i, start in enumerate(starts):
            begin, end = max(match.start() - start, 0), min(match.end() - start, lengths[i])
            if begin < end:
                texts[i] = texts[i][:begin] + value + texts[i][end:]
                value = ""  # the first run has it
    for run, text in zip(runs, texts):
        if run.text != text:
            run.text = text


def text_of(value, name):
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Problem(f"the value of {name} has to be a text or a number")
    return str(value)


def repeat_rows(root, values):
    """Rows with {{list.field}} are repeated for each item of the list."""
    for row in list(root.iter(qn("w:tr"))):
        if next(row.iter(qn("w:tbl")), None) is not None:
            continue  # a table within the row has rows of its own
        names = {n for p in paragraphs(row) for n in PLACE.findall("".join(run.text for run in p.runs)) if "." in n}
        lists = {n.partition(".")[0] for n in names}
        if not lists:
            continue
        if len(lists) > 1:
            raise Problem("a table row names several lists: " + ", ".join(sorted(lists)))
        (key,) = lists
        items = values.get(key)
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Problem(f"{key} has to be a list of objects, because a table row has {{{{{min(names)}}}}}")
        if len(items) > MAX_ROWS:
            raise Problem(f"{key} has {len(items)} items, at most {MAX_ROWS}")
        for item in items:
            made = copy.deepcopy(row)
            row.addprevious(made)

            def value_of(name, item=item):
                head, dot, field = name.partition(".")
                if not dot or head != key:
                    return None
                if field not in item:
                    raise Problem(f"an item of {key} has no {field}")
                return text_of(item[field], name)

            for paragraph in paragraphs(made):
                replace(paragraph, value_of)
        row.getparent().remove(row)


def fill(document, values):
    known = placeholders(document)
    lists = {name.partition(".")[0] for name in known if "." in name}
    missing = sorted(name for name in known if name.partition(".")[0] not in values)
    if missing:
        raise Problem("no value for: " + ", ".join(missing))
    unused = sorted(set(values) - {name for name in known if "." not in name} - lists)
    for root in roots(document):
        repeat_rows(root, values)
        for paragraph in paragraphs(root):
            replace(paragraph, lambda name: text_of(values.get(name.partition(".")[0]), name) if "." not in name else None)
    left = placeholders(document)
    if left:
        raise Problem("these stand outside of a table row, where nothing is repeated: " + ", ".join(sorted(left)))
    return sum(known.values()), unused


def main(argv=None):
    parser = argparse.ArgumentParser(description="Fill the {{placeholders}} of a Word template.")
    parser.add_argument("template", type=Path)
    parser.add_argument("values", type=Path, nargs="?", help="a JSON object: names and what stands for them")
    parser.add_argument("--list", action="store_true", help="list the placeholders and how often each stands there")
    parser.add_argument("--out", type=Path, help=f"default: {OUTPUTS}/NAME-filled.docx")
    args = parser.parse_args(argv)
    try:
        document = open_template(args.template)
        if args.list:
            for name, count in sorted(placeholders(document).items()):
                print(f"{name}\t{count}")
            return 0
        if args.values is None:
            raise Problem("name the JSON file with the values, or ask with --list")
        values = json.loads(args.values.read_text("utf-8"))
        if not isinstance(values, dict):
            raise Problem(f"{args.values} has to be a JSON object")
        out = args.out or OUTPUTS / (args.template.stem + "-filled.docx")
        if out.resolve() == args.template.resolve():
            raise Problem("--out is the template: choose another name")
        count, unused = fill(document, values)
        out.parent.mkdir(parents=True, exist_ok=True)
        document.save(str(out))
    except json.JSONDecodeError as err:
        print(f"fill: {args.values}: line {err.lineno}: {err.msg}", file=sys.stderr)
        return 2
    except (Problem, OSError, UnicodeDecodeError) as err:
        print(f"fill: {err}", file=sys.stderr)
        return 2
    print(f"{out}: {count} placeholders filled" + (f"; not used: {', '.join(unused)}" if unused else ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
