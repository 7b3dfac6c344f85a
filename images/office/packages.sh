# shellcheck shell=bash disable=SC2034 # read by fetch.sh and install.sh
# What the image of the template "office" has beyond base; requirements.txt and package-lock.json name the rest.

# From Debian. LibreOffice has its parts for displays: those without ("-nogui") abort when a macro recalculates a sheet.
# Emoji are Symbola's: those of a colour font are missing in PDF from this LibreOffice.
# Carlito, Caladea and Liberation are as wide as Calibri, Cambria, and Arial, Times New Roman and Courier New.
packages=(
  fontconfig fonts-crosextra-caladea fonts-crosextra-carlito fonts-dejavu fonts-liberation fonts-noto-cjk fonts-noto-core fonts-symbola
  imagemagick libreoffice-calc libreoffice-impress libreoffice-writer pandoc poppler-utils qpdf tesseract-ocr tesseract-ocr-eng
)
