"""The report of an evaluation. All functions are pure.

| module              | content                                                          |
|---------------------|------------------------------------------------------------------|
| `tables`            | the rows of all tables as text, shared by both formats           |
| `html_page`         | the report as one HTML file with plots                           |
| `markdown`          | the report as Markdown, the source of `docs/internals/evaluation.md`       |
| `published_figures` | figures published by others, next to the results of a run        |
"""
