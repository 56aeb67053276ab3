"""The report as one HTML file without external resources, with plots as inline SVG.

All functions are pure: equal data give equal bytes. Plots have a square-root scale, because the
peak after an outage is much higher than the load. On a linear scale, the load would be a flat
line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Final

from hourmark_evaluate.report import tables
from hourmark_evaluate.results import Disturbance, Evaluation, TimelinePoint, TrialResult
from hourmark_evaluate.verdicts import EvaluationVerdict, trial_verdict

WIDTH: Final = 720
HEIGHT: Final = 160
_LEFT, _BOTTOM, _TOP = 62, 22, 8
_SENT, _ACKNOWLEDGED, _AWAY = "#9aa5b1", "#1f6f50", "#f3d9c9"


def plot_rates(points: Sequence[TimelinePoint], disturbances: Sequence[Disturbance]) -> str:
    """Return an SVG plot of the records sent and acknowledged per second.

    Args:
        points: One point per second of the trial, in order.
        disturbances: Injected faults, shown as bands in the background.

    Returns:
        An `<svg>` element; "" if there are no points.
    """
    if not points:
        return ""
    seconds = max(1, points[-1].at_s + 1)
    highest = max(1, *(max(point.sent, point.acknowledged) for point in points))
    sent = [(point.at_s, point.sent) for point in points]
    acknowledged = [(point.at_s, point.acknowledged) for point in points]
    bands = [_band(d, seconds) for d in disturbances]
    lines = [
        _line(sent, seconds, highest, _SENT, "sent"),
        _line(acknowledged, seconds, highest, _ACKNOWLEDGED, "acknowledged"),
    ]
    return "\n".join(
        (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
            'aria-label="records sent and acknowledged per second, over the duration of the trial">',
            *bands,
            *_axes(seconds, highest),
            *lines,
            "</svg>",
        )
    )


def _x(second: float, seconds: int) -> float:
    return round(_LEFT + (WIDTH - _LEFT - 8) * second / seconds, 1)


def _y(count: float, highest: int) -> float:
    return round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * math.sqrt(count / highest), 1)


def _line(
    values: Sequence[tuple[int, int]], seconds: int, highest: int, colour: str, title: str
) -> str:
    path = " ".join(f"{_x(at + 0.5, seconds)},{_y(count, highest)}" for at, count in values)
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" '
        f'stroke-width="1.6"><title>{title}</title></polyline>'
    )


def _band(disturbance: Disturbance, seconds: int) -> str:
    left, right = _x(disturbance.began_s, seconds), _x(disturbance.healed_s, seconds)
    box = (
        f'x="{left}" y="{_TOP}" width="{round(max(1.0, right - left), 1)}" '
        f'height="{HEIGHT - _BOTTOM - _TOP}"'
    )
    return f'<rect {box} fill="{_AWAY}"><title>{escape(disturbance.what)}</title></rect>'


def _axes(seconds: int, highest: int) -> tuple[str, ...]:
    floor = HEIGHT - _BOTTOM
    text = 'font-size="11" font-family="sans-serif" fill="#52606d"'
    return (
        f'<line x1="{_LEFT}" y1="{floor}" x2="{WIDTH - 8}" y2="{floor}" stroke="#52606d"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 9}" text-anchor="end" {text}>{highest:,}/s</text>',
        (
            f'<text x="{_LEFT - 6}" y="{_y(highest / 4, highest) + 4}" text-anchor="end" '
            f"{text}>{highest // 4:,}</text>"
        ),
        f'<text x="{_LEFT - 6}" y="{floor}" text-anchor="end" {text}>0</text>',
        f'<text x="{_LEFT}" y="{HEIGHT - 6}" {text}>0 s</text>',
        f'<text x="{WIDTH - 8}" y="{HEIGHT - 6}" text-anchor="end" {text}>{seconds} s</text>',
    )


_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 62em; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; margin: 1em 0; } th, td { text-align: left; padding: .25em .8em .25em 0; vertical-align: top; }
th { border-bottom: 1px solid #52606d; } td { border-bottom: 1px solid #e4e7eb; } code { background: #f5f7fa; padding: 0 .3em; }
.kept { color: #1f6f50; } .broken { color: #b91c1c; font-weight: bold; } .not-tried { color: #7b8794; }
"""
_CLASSES: Final = {
    EvaluationVerdict.KEPT: "kept",
    EvaluationVerdict.BROKEN: "broken",
    EvaluationVerdict.NOT_TRIED: "not-tried",
}


def as_html(evaluation: Evaluation) -> str:
    """Render an evaluation as a self-contained HTML document with inline styles and plots.

    Args:
        evaluation: The result of a completed or interrupted run.
    """
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>Kafka, evaluated</title>',
            f"<style>{_STYLE}</style></head><body>",
            "<h1>Kafka, evaluated</h1>",
            (
                f"<p>{escape(tables.describe_setting(evaluation))} Command: "
                f"<code>{escape(evaluation.command)}</code>.</p>"
            ),
            "<h2>Verdicts</h2>",
            _table(tables.PROPERTIES, tables.property_rows(evaluation)),
            "<h2>Trials</h2>",
            _table(tables.TRIALS, tables.trial_rows(evaluation)),
            *map(_trial, evaluation.trials),
            "<h2>Faults and recovery times</h2>",
            _table(tables.DISTURBANCES, tables.disturbance_rows(evaluation)),
            "<h2>CPU time</h2>",
            _table(tables.COSTS, tables.cost_rows(evaluation)),
            "<h2>Remarks</h2>",
            "<ul>",
            *(f"<li>{escape(remark)}</li>" for remark in tables.remarks(evaluation)),
            "</ul></body></html>",
            "",
        )
    )


def _trial(trial: TrialResult) -> str:
    plot = plot_rates(trial.timeline, trial.disturbances)
    if not plot:
        return ""
    verdict = trial_verdict(trial)
    legend = (
        "Records per second: sent (grey) and acknowledged (green). Bands mark faults. The vertical "
        "scale is a square root."
    )
    return (
        f'<h3 class="{_CLASSES[verdict]}">{escape(trial.title)}: '
        f"{escape(verdict)}</h3>\n{plot}\n<p>{legend}</p>"
    )


def _table(head: Sequence[str], rows: Sequence[tables.Row]) -> str:
    if not rows:
        return "<p>None.</p>"
    heads = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "\n".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table>"


def _cell(text: str) -> str:
    known = {str(verdict): name for verdict, name in _CLASSES.items()}
    mark = f' class="{known[text]}"' if text in known else ""
    return f"<td{mark}>{escape(text)}</td>"
