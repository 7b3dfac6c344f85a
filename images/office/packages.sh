# shellcheck shell=bash disable=SC2034 # read by fetch.sh and install.sh
# What the image of the template "office" has beyond base; requirements.txt and package-lock.json name the rest.

# From Debian. LibreOffice without a desktop.
packages=(
  fontconfig fonts-dejavu fonts-liberation
  libreoffice-calc-nogui libreoffice-impress-nogui libreoffice-writer-nogui
  pandoc poppler-utils qpdf tesseract-ocr tesseract-ocr-eng
)
