"""The examples on the pages are tested; what builds the site is run by Sphinx only."""

collect_ignore = ["collsim_site.py", "conf.py", "gallery", "generated"]
