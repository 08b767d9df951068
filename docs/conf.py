"""How Sphinx builds the site: ``sphinx-build -W --keep-going -c docs . build/site``, from the top folder.

The whole repository is the source folder, so that README, pages and notebooks are read where they lie and the links
between them work here as they do on GitHub. Nothing is fetched while building.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import collsim  # noqa: E402

project = "collsim"
author = "The collsim developers"
copyright = author
version = release = collsim.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_gallery.gen_gallery",
    "collsim_site",  # what is ours: docs/collsim_site.py
]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**.md",
    "docs/generated/**.rst",
    "notebooks/*.ipynb",
    "topologies/README.md",
]
exclude_patterns = [".*", "build", "dist", "venv", "docs/gallery", "docs/templates", "**/.ipynb_checkpoints"]
templates_path = [str(ROOT / "docs" / "templates")]  # autosummary and the HTML builder start from different folders

# Markdown and notebooks. Notebooks are executed by the tests; here they are shown as they are stored.
nb_execution_mode = "off"
nb_merge_streams = True
myst_heading_anchors = 4

# API reference: every class and function in the ``__all__`` of the modules that docs/api.md lists has a page.
default_role = "py:obj"
autosummary_ignore_module_all = False
autosummary_imported_members = True
autosummary_context = {"top": [name for name in collsim.__all__ if not hasattr(getattr(collsim, name), "__path__")]}
# file systems that take capitals for small letters would mix the page of a class up with that of a room
autosummary_filename_map = {f"collsim.{name}": f"collsim.class.{name}" for name in collsim.__all__ if name[0].isupper()}
autodoc_class_signature = "mixed"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
suppress_warnings = ["ref.python"]  # fields of the same name in several classes: the first is linked
toc_object_entries = False

sphinx_gallery_conf = {
    "examples_dirs": ["docs/gallery"],
    "gallery_dirs": ["docs/generated/gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("collsim_site.pictures",),
    "capture_repr": ("_repr_html_", "__str__"),
    "ignore_repr_types": "matplotlib",
    "backreferences_dir": "docs/generated/backreferences",
    "doc_module": ("collsim",),
    "reference_url": {"collsim": None},
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 3600,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"collsim {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_additional_pages = {"index": "to-index.html"}  # pages keep the folders that they have here
html_sidebars = {name: [] for name in ("README", "CHANGELOG", "CONTRIBUTING", "docs/index")}  # they have no pages below
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "collsim"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}
