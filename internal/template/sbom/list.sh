#!/bin/sh
# What an image is made of, a line each: a kind, a name, a version, an architecture and a licence, with tabs between;
# "end" at the end. Kinds: o the system (name, version), deb, apk, rpm, pypi, npm. Only what POSIX has.
t=$(printf '\t')
# shellcheck source=/dev/null
if [ -r /etc/os-release ]; then (. /etc/os-release && printf 'o\t%s\t%s\t\t\n' "$ID" "$VERSION_ID"); fi
if command -v dpkg-query >/dev/null 2>&1; then
  set --
  for f in /usr/share/doc/*/copyright; do if [ -r "$f" ]; then set -- "$@" "$f"; fi; done
  # Debian's machine-readable form has a line for each licence; the older one names files of common licences.
  dpkg-query -W -f '${db:Status-Abbrev}${Package}\t${Version}\t${Architecture}\n' 2>/dev/null | sed -n 's/^ii *//p' | awk -F "$t" -v OFS="$t" '
    function add(l) {
      gsub(/[;\t\r]/, " ", l); sub(/ +$/, "", l)
      if (l != "" && !((package, l) in seen) && ++count[package] <= 20) { seen[package, l] = 1; licences[package] = licences[package] (count[package] > 1 ? ";" : "") l }
    }
    phase == 1 && FNR == 1 { n = split(FILENAME, path, "/"); package = path[n - 1]; there[package] = 1 }
    phase == 1 && /^License:/ { sub(/^License:[ \t]*/, ""); add($0); next }
    phase == 1 && /usr\/share\/common-licenses\// { sub(/.*usr\/share\/common-licenses\//, ""); match($0, /^[A-Za-z0-9.+-]*[A-Za-z0-9+]/); add(substr($0, 1, RLENGTH)) }
    # Some say it in free words only.
    phase == 2 { print "deb", $1, $2, $3, ($1 in licences) ? licences[$1] : ($1 in there) ? "as in /usr/share/doc/" $1 "/copyright" : "" }' phase=1 "$@" phase=2 -
fi
if [ -r /lib/apk/db/installed ]; then
  awk -F: -v OFS="$t" '/^P:/{n=$2} /^V:/{v=substr($0,3)} /^A:/{a=$2} /^L:/{l=substr($0,3)} /^$/{if(n!="")print "apk",n,v,a,l; n=v=a=l=""} END{if(n!="")print "apk",n,v,a,l}' /lib/apk/db/installed
fi
if command -v rpm >/dev/null 2>&1; then rpm -qa --qf 'rpm\t%{NAME}\t%{VERSION}-%{RELEASE}\t%{ARCH}\t%{LICENSE}\n' 2>/dev/null; fi
if command -v python3 >/dev/null 2>&1; then
  python3 - 2>/dev/null <<'PY'
from importlib import metadata
import os
def one(text):
    return " ".join((text or "").split())[:200]
for d in metadata.distributions():
    m = d.metadata
    # Debian's Python packages are packages of the system, listed with it.
    if not m["Name"] or "/usr/lib/python3/" in str(getattr(d, "_path", "")):
        continue
    licence = one(m["License-Expression"]) or "; ".join(c.rpartition(" :: ")[2] for c in m.get_all("Classifier") or [] if c.startswith("License ::"))
    text = m["License"] or ""
    if not licence and "\n" not in text.strip():
        licence = one(text)
    print("pypi", one(m["Name"]), one(d.version), "", one(licence), sep="\t")
PY
fi
npm() {
  for p in "$@"; do
    shift
    if [ -r "$p" ]; then set -- "$@" "$p"; fi
  done
  [ $# -gt 0 ] || return 0
  awk -v OFS="$t" '
    function value(s) { sub(/^[^:]*:[ \t]*"/, "", s); sub(/".*/, "", s); return s }
    function show() { if (n != "" && v != "") print "npm", n, v, "", l; n = v = l = "" }
    FNR == 1 { show() }
    /^[ \t]*"name"[ \t]*:[ \t]*"/ && n == "" { n = value($0) }
    /^[ \t]*"version"[ \t]*:[ \t]*"/ && v == "" { v = value($0) }
    /^[ \t]*"license"[ \t]*:[ \t]*"/ && l == "" { l = value($0) }
    END { show() }' "$@"
}
for dir in /node_modules /usr/local/lib/node_modules /usr/lib/node_modules /usr/share/nodejs; do
  npm "$dir"/*/package.json "$dir"/@*/*/package.json "$dir"/*/node_modules/*/package.json "$dir"/*/node_modules/@*/*/package.json
done
npm /usr/local/share/skerry/parts/*/package.json
echo end
