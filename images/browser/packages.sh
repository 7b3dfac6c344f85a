# shellcheck shell=bash disable=SC2034 # read by fetch.sh and install.sh
# What the image of the template "browser" has beyond base; requirements.txt and package-lock.json name the rest.

# From Debian. Chromium, and fonts for what it shows.
packages=(chromium fontconfig fonts-dejavu-core fonts-liberation fonts-noto-cjk fonts-noto-color-emoji fonts-noto-core)
# Other names of programs: what looks for Google's finds Debian's.
names=("/usr/bin/chromium google-chrome")
