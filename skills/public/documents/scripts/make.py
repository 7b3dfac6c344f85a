#!/usr/bin/env python3
"""Make a Word document of Markdown. See ../SKILL.md."""

import argparse
import subprocess
import sys
from pathlib import Path

import docx
from docx.oxml import OxmlElement
from docx.oxml.ns import qn
from docx.shared import Mm, Pt

OUTPUTS = Path("/mnt/user-data/outputs")
MAX_TEXT = 16 << 20
A4, LETTER = (Mm(210), Mm(297)), (Mm(215.9), Mm(279.4))


class Problem(Exception):
    """What the caller has to put right."""


def element(name, **attributes):
    made = OxmlElement(name)
    for key, value in attributes.items():
        made.set(qn("w:" + key), value)
    return made


def border_tables(document):
    """Pandoc leaves tables without lines, and their first row is the header."""
    for table in document.tables:
        if not table.rows:
            continue
        properties = table._tbl.tblPr
        borders = element("w:tblBorders")
        for edge in ("top", "left", "bottom", "right", "insideH", "insideV"):
            borders.append(element("w:" + edge, val="single", sz="4", space="0", color="999999"))
        look = properties.find(qn("w:tblLook"))
        if look is not None:  # the schema wants tblBorders before it
            look.addprevious(borders)
        else:
            properties.append(borders)
        header = table.rows[0]._tr.get_or_add_trPr()
        if header.find(qn("w:tblHeader")) is None:
            header.append(element("w:tblHeader"))
        for cell in table.rows[0].cells:
            for paragraph in cell.paragraphs:
                for run in paragraph.runs:
                    run.bold = True


def number_pages(section):
    footer = section.footer
    footer.is_linked_to_previous = False
    paragraph = footer.paragraphs[0] if footer.paragraphs else footer.add_paragraph()
    if paragraph.text.strip():
        return  # --like has a footer of its own
    paragraph.alignment = 1
    run = paragraph.add_run()
    for kind, text in (("begin", None), (None, "PAGE"), ("end", None)):
        if kind:
            run._r.append(element("w:fldChar", fldCharType=kind))
        else:
            instruction = element("w:instrText")
            instruction.text = text
            run._r.append(instruction)
    run.font.size = Pt(9)


def convert(source, out, like, toc):
    command = ["pandoc", "--from", "gfm+footnotes+yaml_metadata_block", "--to", "docx", "--output", str(out), str(source)]
    command += ["--reference-doc", str(like)] if like else []
    command += ["--toc", "--toc-depth", "2"] if toc else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=source.parent)
    if done.returncode:
        raise Problem("pandoc: " + done.stderr.strip()[:500])
    return [line for line in done.stderr.splitlines() if line.strip()]


def make(args):
    source = args.file.resolve()
    if not source.is_file():
        raise Problem(f"there is no file {args.file}")
    if source.stat().st_size > MAX_TEXT:
        raise Problem(f"{args.file} has more than {MAX_TEXT >> 20} MiB")
    if args.like and not args.like.is_file():
        raise Problem(f"there is no file {args.like}")
    out = args.out or OUTPUTS / (source.stem + ".docx")
    if out.suffix.lower() != ".docx":
        raise Problem(f"--out {out}: the name has to end with .docx")
    if args.like and out.exists() and out.samefile(args.like):
        raise Problem("--out is the document of --like: choose another name")
    out.parent.mkdir(parents=True, exist_ok=True)
    warnings = convert(source, out.resolve(), args.like and args.like.resolve(), args.toc)
    document = docx.Document(str(out))
    if args.title:
        document.core_properties.title = args.title
        first = document.paragraphs[0] if document.paragraphs else document.add_paragraph()
        first.insert_paragraph_before(args.title, style="Title")
    for section in document.sections:
        if not args.like:
            section.page_width, section.page_height = LETTER if args.letter else A4
            section.left_margin = section.right_margin = Mm(25)
        number_pages(section)
    border_tables(document)
    document.save(str(out))
    return out, document, warnings


def main(argv=None):
    parser = argparse.ArgumentParser(description="Make a Word document of Markdown.")
    parser.add_argument("file", type=Path, help="the Markdown file; pictures are found relative to it")
    parser.add_argument("--out", type=Path, help=f"default: {OUTPUTS}/NAME.docx")
    parser.add_argument("--title", help="a title above the text, and in the document's properties")
    parser.add_argument("--toc", action="store_true", help="a table of contents, which Word fills in when the document is opened")
    parser.add_argument("--letter", action="store_true", help="US Letter in place of A4")
    parser.add_argument("--like", type=Path, metavar="FILE.docx", help="take styles and page layout from this document")
    args = parser.parse_args(argv)
    try:
        out, document, warnings = make(args)
    except subprocess.TimeoutExpired:
        print("make: pandoc took more than 120 seconds: make the text smaller", file=sys.stderr)
        return 2
    except (Problem, OSError, docx.opc.exceptions.PackageNotFoundError) as err:
        print(f"make: {err}", file=sys.stderr)
        return 2
    for line in warnings[:20]:
        print("make: " + line, file=sys.stderr)
    print(f"{out}: {len(document.paragraphs)} paragraphs, {len(document.tables)} tables")
    return 0


if __name__ == "__main__":
    sys.exit(main())
