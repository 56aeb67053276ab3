"""The report as one HTML file without external resources. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from hourmark_evaluate import wording
from hourmark_evaluate.plots import over_time
from hourmark_evaluate.results import Evaluation, Trial
from hourmark_evaluate.verdicts import Verdict, of_trial

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; } th, td { text-align: left; padding: .25em .8em .25em 0; vertical-align: top; }
th { border-bottom: 1px solid #52606d; } td { border-bottom: 1px solid #e4e7eb; } code { background: #f5f7fa; padding: 0 .3em; }
.kept { color: #1f6f50; } .broken { color: #b91c1c; font-weight: bold; } .not-tried { color: #7b8794; }
"""
_CLASSES: Final = {Verdict.KEPT: "kept", Verdict.BROKEN: "broken", Verdict.NOT_TRIED: "not-tried"}


def as_html(evaluation: Evaluation) -> str:
    """Return the complete report as one HTML document, with inline styles and plots."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>Kafka, evaluated</title>',
            f"<style>{_STYLE}</style></head><body>",
            "<h1>Kafka, evaluated</h1>",
            (
                f"<p>{escape(wording.setting(evaluation))} Repeat it by "
                f"<code>{escape(evaluation.command)}</code>.</p>"
            ),
            "<h2>Verdicts</h2>",
            _table(wording.PROPERTIES, wording.property_rows(evaluation)),
            "<h2>Trials</h2>",
            _table(wording.TRIALS, wording.trial_rows(evaluation)),
            *map(_trial, evaluation.trials),
            "<h2>What was done, and how long it took</h2>",
            _table(wording.DISTURBANCES, wording.disturbance_rows(evaluation)),
            "<h2>What it cost</h2>",
            _table(wording.COSTS, wording.cost_rows(evaluation)),
            "<h2>Also seen</h2>",
            "<ul>",
            *(f"<li>{escape(remark)}</li>" for remark in wording.remarks(evaluation)),
            "</ul></body></html>",
            "",
        )
    )


def _trial(trial: Trial) -> str:
    plot = over_time(trial.timeline, trial.disturbances)
    if not plot:
        return ""
    verdict = of_trial(trial)
    legend = (
        "records a second: grey sent, green acknowledged; a band: servers away; heights are "
        "square roots"
    )
    return (
        f'<h3 class="{_CLASSES[verdict]}">{escape(trial.title)}: '
        f"{escape(verdict)}</h3>\n{plot}\n<p>{legend}</p>"
    )


def _table(head: Sequence[str], rows: Sequence[wording.Row]) -> str:
    if not rows:
        return "<p>Nothing.</p>"
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _cell(text: str) -> str:
    known = {str(verdict): name for verdict, name in _CLASSES.items()}
    mark = f' class="{known[text]}"' if text in known else ""
    return f"<td{mark}>{escape(text)}</td>"
