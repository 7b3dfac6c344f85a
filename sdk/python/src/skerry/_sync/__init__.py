# Made from the async client by scripts/generate.py.
