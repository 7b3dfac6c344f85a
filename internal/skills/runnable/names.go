package runnable

import (
	"regexp"
	"strings"
)

// distributions are the names on PyPI of modules that are imported by another name.
var distributions = map[string]string{
	"cv2": "opencv-python", "PIL": "pillow", "yaml": "pyyaml", "bs4": "beautifulsoup4", "docx": "python-docx", "pptx": "python-pptx", "sklearn": "scikit-learn",
	"skimage": "scikit-image", "fitz": "pymupdf", "dateutil": "python-dateutil", "dotenv": "python-dotenv", "magic": "python-magic", "jwt": "pyjwt", "Crypto": "pycryptodome",
	"OpenSSL": "pyopenssl", "serial": "pyserial", "usb": "pyusb", "git": "gitpython", "github": "pygithub", "google": "google-api-python-client", "googleapiclient": "google-api-python-client",
	"psycopg2": "psycopg2-binary", "MySQLdb": "mysqlclient", "attr": "attrs", "pkg_resources": "setuptools", "Bio": "biopython", "scvi": "scvi-tools", "umap": "umap-learn",
	"fuzzywuzzy": "fuzzywuzzy", "Levenshtein": "python-levenshtein", "slugify": "python-slugify", "markdown": "markdown", "ruamel": "ruamel.yaml", "zmq": "pyzmq", "wx": "wxpython",
	"gi": "pygobject", "win32com": "pywin32", "xlrd": "xlrd", "speech_recognition": "speechrecognition", "telegram": "python-telegram-bot", "discord": "discord.py", "mpl_toolkits": "matplotlib",
	"pylab": "matplotlib", "pdfminer": "pdfminer.six", "pymupdf": "pymupdf", "lxml": "lxml", "allotropy": "allotropy", "igraph": "python-igraph", "leidenalg": "leidenalg", "faiss": "faiss-cpu",
	"snowflake": "snowflake-connector-python", "jose": "python-jose", "nacl": "pynacl", "kubernetes": "kubernetes", "jenkins": "python-jenkins", "ldap": "python-ldap", "barcode": "python-barcode",
	"Xlib": "python-xlib", "charset_normalizer": "charset-normalizer", "typing_extensions": "typing-extensions", "imblearn": "imbalanced-learn", "sentence_transformers": "sentence-transformers",
	"pytorch_lightning": "pytorch-lightning", "apiclient": "google-api-python-client", "flask_cors": "flask-cors", "rest_framework": "djangorestframework",
}

// distributionOf is the name on PyPI of what a module comes with.
func distributionOf(module string) string {
	if d := distributions[module]; d != "" {
		return d
	}
	return normalized(module)
}

var separators = regexp.MustCompile(`[-_.]+`)

// normalized is the form in which names of distributions are compared (PEP 503).
func normalized(name string) string {
	return separators.ReplaceAllString(strings.ToLower(name), "-")
}

// knownTools are programs whose name in a text, as code, means the program: words that are also English, such
// as make, find or file, and names of services, are not among them.
var knownTools = setOf(`pandoc soffice libreoffice lowriter pdftotext pdftoppm pdfimages pdfinfo pdfunite pdftk qpdf mutool tesseract ocrmypdf ghostscript ffmpeg ffprobe imagemagick
	magick mogrify exiftool sox yt-dlp youtube-dl inkscape rsvg-convert wkhtmltopdf weasyprint typst xelatex pdflatex lualatex latexmk graphviz plantuml mmdc mermaid-cli
	git gh glab jq yq rg ripgrep curl wget tar unzip gzip sqlite3 duckdb psql mysql mongosh redis-cli bq gcloud gsutil aws az kubectl helm terraform docker docker-compose podman
	node bun deno npm npx pnpm yarn bunx tsc tsx eslint prettier jest vitest playwright puppeteer uv uvx pip pip3 pipx poetry conda mamba python python3 pytest ruff mypy flake8 pylint
	jupyter Rscript ruby bundle perl php composer java javac mvn gradle kotlin dotnet cargo rustc xcodebuild julia nextflow nf-core snakemake samtools
	bcftools bedtools bwa kallisto fastqc multiqc cutadapt trimmomatic fasterq-dump dbt airflow dagster sqlfluff great_expectations 	lighthouse pa11y chromium google-chrome chromedriver selenium nmap nikto sqlmap semgrep trivy gitleaks trufflehog shellcheck hadolint wrangler 	nvidia-smi nvcc singularity apptainer velocyto osascript pbcopy xclip`)

// programOf are programs that go by another name.
var programOf = map[string]string{
	"libreoffice": "soffice", "imagemagick": "convert", "ghostscript": "gs", "graphviz": "dot", "ripgrep": "rg", "mermaid-cli": "mmdc", "nodejs": "node",
}

// knownPython are distributions whose name in a text, as code, means the package.
var knownPython = setOf(`pandas numpy scipy matplotlib seaborn plotly altair bokeh statsmodels scikit-learn sklearn openpyxl xlsxwriter xlrd python-docx docxtpl python-pptx pypdf pypdf2
	pdfplumber pymupdf reportlab pdf2image pytesseract pillow opencv-python requests httpx aiohttp beautifulsoup4 bs4 lxml selenium scrapy sqlalchemy polars pyarrow duckdb networkx sympy
	torch tensorflow keras transformers jax xgboost lightgbm prophet nltk spacy gensim scanpy anndata scvi-tools allotropy biopython rdkit geopandas shapely folium jinja2 pyyaml pydantic
	fastapi flask django streamlit gradio dash defusedxml markitdown weasyprint fpdf imageio moviepy pydub wordcloud`)

// telling are names that mean the program or package also in plain text.
var telling = setOf(`pandas numpy scipy matplotlib seaborn plotly statsmodels scikit-learn openpyxl xlsxwriter python-docx docxtpl python-pptx pypdf pypdf2 pdfplumber pymupdf reportlab
	pdf2image pytesseract xgboost lightgbm scanpy anndata scvi-tools allotropy biopython rdkit geopandas pandoc soffice libreoffice pdftotext pdftoppm qpdf tesseract ffmpeg imagemagick nextflow`)

// writers are what documents of a format are usually written with.
var writers = map[string][]string{
	"docx": {"python-docx", "docx", "docxtpl", "pandoc", "soffice"}, "xlsx": {"openpyxl", "xlsxwriter", "exceljs", "xlsx", "soffice"},
	"pptx": {"python-pptx", "pptxgenjs", "soffice"},
	"pdf":  {"reportlab", "weasyprint", "fpdf", "fpdf2", "pymupdf", "soffice", "wkhtmltopdf", "typst", "pdflatex", "chromium", "google-chrome", "pdf-lib", "pdfkit"},
}

// shortNames are names under which examples use a module without importing it.
var shortNames = map[string]string{"np": "numpy", "pd": "pandas", "plt": "matplotlib", "sns": "seaborn", "px": "plotly", "df": "pandas", "sc": "scanpy", "adata": "anndata", "sm": "statsmodels"}
