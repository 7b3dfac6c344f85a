"""A hook of MkDocs: a link to a file of the tree that is no page of the site leads to the repository."""

import os
import posixpath
import re

REPOSITORY = "https://github.com/skerry-sandbox/skerry/blob/main/"
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")


def on_page_markdown(markdown, page, config, files):
    folder = posixpath.dirname(page.file.src_uri)

    def lead(match):
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        if files.get_file_from_path(target) is not None:
            return match[0]
        index = posixpath.join(target, "README.md")
        if files.get_file_from_path(index) is not None:
            return match[1] + posixpath.join(match[2], "README.md") + match[3]
        if target.startswith("..") or not os.path.lexists(target):
            return match[0]  # MkDocs reports it
        return match[1] + REPOSITORY + target + match[3]

    return LINK.sub(lead, markdown)
