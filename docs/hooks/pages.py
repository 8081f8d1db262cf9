"""Pages of the site that lie outside ``docs/``, and links between the two.

In the repository a link is a path from its file, so that it works there. On the site the pages of
``OUTSIDE`` stand beside those of ``docs/``, and links to them and from them are rewritten.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

OUTSIDE = {"experiments/README.md": "experiments.md", "CONTRIBUTING.md": "contributing.md"}
"""Path in the repository and on the site; notebooks have the same in both."""
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of ``OUTSIDE``."""
    root = Path(config.config_file_path).parent
    notebooks = [f"notebooks/{path.name}" for path in (root / "notebooks").glob("*.ipynb")]
    for path, place in [*OUTSIDE.items(), *zip(notebooks, notebooks, strict=True)]:
        files.append(File.generated(config, place, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links into those of the site."""
    del config, files
    place = page.file.src_uri
    path = next((path for path, put in OUTSIDE.items() if put == place), f"docs/{place}")
    return LINK.sub(lambda link: _on_site(link[0], path, place), markdown)


def _on_site(link: str, path: str, place: str) -> str:
    """``link`` of the file ``path``, which stands at ``place`` on the site."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
    target = OUTSIDE.get(target, target.removeprefix("docs/"))
    return posixpath.relpath(target, posixpath.dirname(place) or ".")
