#!/bin/sh
# What is here, a line each: a kind, a name and a version, with tabs between; "end" at the end.
# Kinds: c a program on PATH, v the version of python3, m a Python module, d a distribution,
# n an npm package that a script in a skill can import, g one that is installed globally, s a package of the system.
# Only what POSIX has: the image may have nothing else.
t=$(printf '\t')
IFS=:
for dir in $PATH; do
  for f in "$dir"/*; do
    if [ -f "$f" ] && [ -x "$f" ]; then printf 'c\t%s\n' "${f##*/}"; fi
  done
done
unset IFS
if command -v python3 >/dev/null 2>&1; then
  python3 - 2>/dev/null <<'PY'
import sys, pkgutil, importlib.util
print("v", "%d.%d.%d" % sys.version_info[:3], sep="\t")
names = set(sys.builtin_module_names)
for name in getattr(sys, "stdlib_module_names", ()):  # some distributions leave out a part of it
    try:
        if importlib.util.find_spec(name) is not None:
            names.add(name)
    except Exception:
        pass
for m in pkgutil.iter_modules():
    names.add(m.name)
for path in sys.path:  # namespace packages: folders without __init__.py
    if path.endswith(("site-packages", "dist-packages")):
        import os
        try:
            names.update(d for d in os.listdir(path) if d.isidentifier() and os.path.isdir(os.path.join(path, d)))
        except OSError:
            pass
for name in sorted(names):
    print("m", name, sep="\t")
try:
    from importlib import metadata
    for d in metadata.distributions():
        if d.metadata["Name"]:
            print("d", d.metadata["Name"], d.version, sep="\t")
except Exception:
    pass
PY
fi
# packages KIND FOLDER
packages() {
  for p in "$2"/*/package.json "$2"/@*/*/package.json; do
    [ -f "$p" ] || continue
    name=${p#"$2"/}
    version=$(sed -n 's/^[[:space:]]*"version"[[:space:]]*:[[:space:]]*"\([^"]*\)".*/\1/p' "$p" | head -n 1)
    printf '%s\t%s\t%s\n' "$1" "${name%/package.json}" "$version"
  done
}
IFS=:
for dir in $NODE_PATH; do packages n "$dir"; done
unset IFS
for dir in /mnt/skills/node_modules /mnt/node_modules /node_modules "$HOME/.node_modules" "$HOME/.node_libraries"; do packages n "$dir"; done
for dir in /usr/local/lib/node_modules /usr/lib/node_modules /usr/share/nodejs "$HOME/.bun/install/global/node_modules"; do packages g "$dir"; done
if command -v dpkg-query >/dev/null 2>&1; then dpkg-query -W -f "\${db:Status-Abbrev} s$t\${Package}$t\${Version}\n" 2>/dev/null | sed -n 's/^ii  *//p'; fi
if command -v apk >/dev/null 2>&1; then apk info 2>/dev/null | sed "s/^/s$t/"; fi
echo end
