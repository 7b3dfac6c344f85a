# shellcheck shell=bash disable=SC2034 # read by fetch.sh and install.sh
# What the image of the template "data" has beyond base; requirements.txt names the rest.

# From Debian.
packages=(fonts-dejavu-core fonts-liberation tzdata)
