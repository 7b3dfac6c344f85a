#!/usr/bin/env python3
"""Keep claims with their sources, check the quotes, write a cited report. See ../SKILL.md."""

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import unicodedata
from pathlib import Path

NOTES = Path("/mnt/user-data/workspace/research")
MAX_SOURCE = 16 << 20
MAX_NOTES = 5000
MAX_TEXT = 2000  # characters of a claim, a quote, a title
MIN_QUOTE = 8


class Problem(Exception):
    """What the caller has to put right."""


def plain(text):
    """A text without what copying changes: kinds of blanks, quotation marks and dashes, hyphens at line ends, case."""
    text = unicodedata.normalize("NFKC", text).replace("\u00ad", "")
    text = re.sub(r"(?<=\w)-\s*\n\s*(?=\w)", "", text)
    text = re.sub("[\u2018\u2019\u201a\u201b\u2032`\u00b4]", "'", text)
    text = re.sub("[\u201c\u201d\u201e\u00ab\u00bb\u2033]", '"', text)
    text = re.sub("[\u2010-\u2015\u2212]", "-", text)
    return re.sub(r"\s+", " ", text).strip().casefold()


class Notebook:
    """The notes of one folder, in the order in which they were made."""

    def __init__(self, folder):
        self.file = folder / "notes.jsonl"
        self.notes = []
        if self.file.exists():
            for number, line in enumerate(self.file.read_text("utf-8").splitlines(), 1):
                try:
                    note = json.loads(line)
                    self.notes.append({"kind": note["kind"], "id": note["id"], **note})
                except (ValueError, KeyError, TypeError):
                    raise Problem(f"{self.file}: line {number} is not a note: mend or remove it") from None

    def of(self, kind):
        return [n for n in self.notes if n["kind"] == kind]

    def find(self, wanted):
        for note in self.notes:
            if note["id"] == wanted.upper():
                return note
        raise Problem(f"there is no note {wanted}; `list` shows them")

    def add(self, kind, letter, **fields):
        if len(self.notes) >= MAX_NOTES:
            raise Problem(f"there are {MAX_NOTES} notes already")
        number = 1 + max((int(n["id"][1:]) for n in self.of(kind)), default=0)
        note = {"kind": kind, "id": f"{letter}{number}", **fields}
        self.notes.append(note)
        return note

    def save(self):
        """All or nothing: a script that is ended leaves the former notes."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(n, ensure_ascii=False) + "\n" for n in self.notes)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=self.file.parent, delete=False) as f:
            f.write(text)
        os.replace(f.name, self.file)


def short(text, what):
    text = " ".join(text.split())
    if not text or len(text) > MAX_TEXT:
        raise Problem(f"{what} has 1 to {MAX_TEXT} characters")
    return text


def read_source(path):
    path = Path(path)
    if not path.is_file():
        raise Problem(f"there is no file {path}")
    if path.stat().st_size > MAX_SOURCE:
        raise Problem(f"{path} has more than {MAX_SOURCE >> 20} MiB")
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise Problem(f"{path} is not text in UTF-8: save the text of the source, not its PDF or web page") from None


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def source(book, args):
    text = read_source(args.file)
    for known in book.of("source"):
        if known["sha256"] == digest(text):
            print(f"{known['id']}: it is there already, as {known['title']}")
            return
    note = book.add("source", "S", title=short(args.title, "--title"), url=args.url or "", date=args.date or "", file=str(args.file.resolve()), sha256=digest(text))
    book.save()
    print(f"{note['id']}: {note['title']}, {len(text.split())} words")


def question(book, args):
    text = short(args.text, "a question")
    known = [n for n in book.of("question") if n["text"] == text]
    note = known[0] if known else book.add("question", "Q", text=text)
    book.save()
    print(f"{note['id']}: {note['text']}")


def nearest(quote, text):
    """The longest beginning of the quote that stands in the text, as a hint."""
    words = quote.split(" ")
    for n in range(len(words) - 1, 2, -1):
        if " ".join(words[:n]) in text:
            return f"; it has the beginning {' '.join(words[:n])!r}, and goes on otherwise"
    return ""


def claim(book, args):
    text, quote = short(args.text, "a claim"), short(args.quote, "--quote")
    where = book.find(args.source)
    if where["kind"] != "source":
        raise Problem(f"{args.source} is no source")
    if len(plain(quote)) < MIN_QUOTE:
        raise Problem(f"--quote has at least {MIN_QUOTE} characters: a shorter one proves nothing")
    whole = plain(read_source(where["file"]))
    if plain(quote) not in whole:
        raise Problem(f"the quote does not stand in {where['id']} ({where['file']})" + nearest(plain(quote), whole))
    evidence = {"source": where["id"], "quote": quote, "against": args.against, "weak": args.weak}
    known = [n for n in book.of("claim") if n["text"] == text]
    if known:
        note = known[0]
        if evidence not in note["evidence"]:
            note["evidence"].append(evidence)
    else:
        asked = short(args.question, "--question") if args.question else ""
        if asked and asked not in [n["text"] for n in book.of("question")]:
            book.add("question", "Q", text=asked)
        note = book.add("claim", "C", text=text, question=asked, evidence=[evidence])
    book.save()
    print(f"{note['id']}: {note['text']}, {len(note['evidence'])} pieces of evidence")


def sides(note):
    """The sources for and against a claim."""
    return tuple(list(dict.fromkeys(e["source"] for e in note["evidence"] if e["against"] == side)) for side in (False, True))


def findings(book):
    found = []
    claims = book.of("claim")
    for note in claims:
        pro, contra = sides(note)
        if pro and contra:
            found.append(f"{note['id']} is contested: {', '.join(pro)} for, {', '.join(contra)} against")
        elif len(pro) == 1:
            found.append(f"{note['id']} has one source only, {pro[0]}")
        if pro and all(e["weak"] for e in note["evidence"] if not e["against"]):
            found.append(f"{note['id']} has weak sources only")
    answered = {n["question"] for n in claims}
    found += [f"{n['id']} has no claim: {n['text']}" for n in book.of("question") if n["text"] not in answered]
    used = {e["source"] for n in claims for e in n["evidence"]}
    for note in book.of("source"):
        if note["id"] not in used:
            found.append(f"{note['id']} is not used: {note['title']}")
        try:
            if digest(read_source(note["file"])) != note["sha256"]:
                found.append(f"{note['id']} has changed since it was registered: {note['file']}")
        except Problem as err:
            found.append(f"{note['id']}: {err}")
    return found


def check(book, _):
    found = findings(book)
    print("\n".join(found) or f"{len(book.of('claim'))} claims, {len(book.of('source'))} sources: nothing to say")
    return 1 if found else 0


def cited(note):
    pro, contra = sides(note)
    text = note["text"] + "".join(f" [{s}]" for s in pro)
    return text + (f" (contested by {', '.join(contra)})" if contra and pro else f" **Contradicted** by {', '.join(contra)}." if contra else "")


def report(book, args):
    claims, lines = book.of("claim"), [f"# {args.title}", ""]
    if not claims:
        raise Problem("there is no claim yet")
    asked = [n["text"] for n in book.of("question")] + [""]
    for text in asked:
        mine = [n for n in claims if n["question"] == text]
        if not mine and not text:
            continue
        lines += [f"## {text or 'Further findings'}", ""]
        lines += [f"- {cited(n)}" for n in mine] or ["Open: no source that was read answers it."]
        lines.append("")
    lines += ["## Evidence", ""]
    for note in claims:
        lines += [f"- {note['text']}"] + [f"  - {'against' if e['against'] else 'for'}, {e['source']}{', weak' if e['weak'] else ''}: \u201c{e['quote']}\u201d" for e in note["evidence"]]
    lines += ["", "## Sources", ""]
    used = {e["source"] for n in claims for e in n["evidence"]}
    lines += [f"- [{n['id']}] {n['title']}" + (f", {n['date']}" if n["date"] else "") + (f", <{n['url']}>" if n["url"] else "") for n in book.of("source") if n["id"] in used]
    text = "\n".join(lines) + "\n"
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text, "utf-8")
        print(f"{args.out}: {len(claims)} claims, {len(used)} sources")
    else:
        print(text, end="")


def show(book, _):
    for note in book.notes:
        text = note.get("text") or note.get("title")
        more = " ".join(f"{'-' if e['against'] else '+'}{e['source']}" for e in note.get("evidence", []))
        print("\t".join(x for x in (note["id"], text, more or note.get("url", "")) if x))


def drop(book, args):
    note = book.find(args.id)
    if note["kind"] == "source" and any(e["source"] == note["id"] for n in book.of("claim") for e in n["evidence"]):
        raise Problem(f"claims refer to {note['id']}: drop them first")
    book.notes.remove(note)
    book.save()
    print(f"{note['id']} is removed")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Keep claims with their sources, check the quotes, write a cited report.")
    parser.add_argument("--notes", type=Path, default=NOTES, help=f"folder of the notes (default {NOTES})")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, action, about):
        sub = commands.add_parser(name, help=about, description=about)
        sub.set_defaults(action=action)
        return sub

    sub = command("source", source, "register the text of a source")
    sub.add_argument("file", type=Path)
    sub.add_argument("--title", required=True)
    sub.add_argument("--url")
    sub.add_argument("--date", help="of the source: 2026-02-11")
    sub = command("question", question, "note an open question")
    sub.add_argument("text")
    sub = command("claim", claim, "note a claim, with a quote of a source")
    sub.add_argument("text")
    sub.add_argument("--question")
    sub.add_argument("--source", required=True, metavar="S1")
    sub.add_argument("--quote", required=True)
    sub.add_argument("--against", action="store_true", help="the source contradicts the claim")
    sub.add_argument("--weak", action="store_true", help="the source is old, second-hand or partial")
    command("check", check, "say what is missing or contested")
    sub = command("report", report, "write the report, in Markdown")
    sub.add_argument("--title", required=True)
    sub.add_argument("--out", type=Path)
    command("list", show, "list all notes")
    sub = command("drop", drop, "remove a note")
    sub.add_argument("id")
    args = parser.parse_args(argv)
    try:
        return args.action(Notebook(args.notes), args) or 0
    except (Problem, OSError, UnicodeDecodeError) as err:
        print(f"notes: {err}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
