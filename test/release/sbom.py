"""Reads the lists of parts of a release by the libraries of CycloneDX and SPDX, and compares them with the files themselves.

sbom.py DIST: for each archive of programs and each image, NAME.cdx.json and NAME.spdx.json are valid, have the same
parts, and name every Go module of its programs and every package of its Debian with its version.
"""

import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import zipfile

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

PROGRAM = re.compile(r"(^|/)skerry[a-z-]*(\.exe)?$")
STATUS = re.compile(r"(^|/)var/lib/dpkg/status$")


def fail(text):
    sys.exit(f"FAILED: {text}")


def contents(file):
    """Yields name and bytes of the programs and of dpkg's list in an archive or an image."""
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as z:
            yield from ((n, z.read(n)) for n in z.namelist() if PROGRAM.search(n))
        return
    with tarfile.open(file) as t:
        if file.suffix != ".tar":
            yield from members(t)
            return
        for layer in json.load(t.extractfile("manifest.json"))[0]["Layers"]:
            with tarfile.open(fileobj=t.extractfile(layer), mode="r|gz") as l:
                yield from members(l)


def members(t):
    for m in t:
        if m.isfile() and (PROGRAM.search(m.name) or STATUS.search(m.name)):
            yield m.name, t.extractfile(m).read()


def is_program(data):
    """Tells programs of Linux, Windows and macOS from scripts."""
    return data.startswith((b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe"))


def modules(program):
    """Names the modules of a program with their versions, as Go itself reads them."""
    with tempfile.NamedTemporaryFile(prefix="skerry-sbom-") as f:
        f.write(program)
        f.flush()
        text = subprocess.run(["go", "version", "-m", f.name], check=True, capture_output=True, text=True).stdout
    lines = [line.split("\t") for line in text.splitlines()]
    return {(c[2], c[3]) for c in lines if len(c) > 3 and c[1] == "dep"}


def packages(status):
    """Names the packages that dpkg has installed."""
    for paragraph in status.decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and not line.startswith(" "))
        if fields.get("Status") == "install ok installed":
            yield fields["Package"], fields["Version"]


def read(stem):
    """Returns the parts in CycloneDX's list, which SPDX's list must have, too."""
    text = pathlib.Path(f"{stem}.cdx.json").read_text()
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        fail(f"{stem}.cdx.json: {problem}")
    parts = {(c["name"], c["version"]) for c in json.loads(text)["components"] if "purl" in c}
    purls = {c["purl"] for c in json.loads(text)["components"] if "purl" in c}
    document = parse_file(f"{stem}.spdx.json")
    if problems := validate_full_spdx_document(document):
        fail(f"{stem}.spdx.json: {problems[0].validation_message}, and {len(problems) - 1} more")
    other = {r.locator for p in document.packages for r in p.external_references}
    if purls != other:
        fail(f"{stem}: CycloneDX and SPDX differ: {sorted(purls ^ other)[:3]}")
    for purl in purls:
        if not re.fullmatch(r"pkg:[a-z]+/[^ ]+@[^ ]+", urllib.parse.unquote(purl)):
            fail(f"{stem}: {purl} is no package URL with a version")
    return parts


def main(dist):
    files = sorted([*dist.glob("skerry_*.tar.gz"), *dist.glob("skerry_*.zip"), *dist.glob("skerry-image-*.tar")])
    go = debian = 0
    for file in files:
        stem = str(file)[: -len(".tar.gz" if file.name.endswith(".tar.gz") else file.suffix)]
        parts = read(stem)
        found = [(n, data) for n, data in contents(file) if STATUS.search(n) or is_program(data)]
        if not found:
            fail(f"{file.name} has neither programs nor packages")
        for name, data in found:
            want = set(packages(data)) if STATUS.search(name) else modules(data)
            if len(want) < 10 and not name.endswith(("sandboxd", "bridge")):
                fail(f"{file.name}, {name}: {len(want)} parts to compare with")
            if missing := want - parts:
                fail(f"{file.name}: the list lacks {sorted(missing)[:3]}")
            if STATUS.search(name):
                debian += len(want)
            else:
                go += len(want)
    if not go or not debian:
        fail(f"{go} modules and {debian} packages were compared")
    print(f"  lists of parts of {len(files)} files, as CycloneDX and SPDX: valid, with {go} modules and {debian} packages of Debian")


main(pathlib.Path(sys.argv[1]))
