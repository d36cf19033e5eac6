"""An explanation as a self-contained HTML page: the text of each label, coloured by the weight of its words."""

from __future__ import annotations

from html import escape

from laha.explain import Explanation, LabelExplanation

KINDS = {"fused": "fused", "self": "self-attention", "interaction": "interaction attention"}

_STYLE = """
:root { color-scheme: light dark; --heat: 214 88 0; }
body { font: 1rem/1.7 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; } h2 small { font-weight: normal; opacity: .75; }
mark { background: rgb(var(--heat) / var(--w)); color: inherit; border-radius: .2em; padding: .1em 0; }
.self, .interaction, .fused { display: none; white-space: pre-wrap; overflow-wrap: anywhere; }
#k-self:checked ~ main .self, #k-interaction:checked ~ main .interaction, #k-fused:checked ~ main .fused
{ display: block; }
input[name=kind] + label { margin-right: 1rem; }
"""


def heat_map(explanation: Explanation) -> str:
    """Return the page; it loads nothing and runs no script, and whatever the text holds is shown as text."""
    controls = "".join(
        f'<input type="radio" name="kind" id="k-{kind}"{" checked" if kind == "fused" else ""}>'
        f'<label for="k-{kind}">{name}</label>'
        for kind, name in KINDS.items()
    )
    sections = "".join(_section(explanation.text, label) for label in explanation.labels)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>The words behind the labels</title><style>{_STYLE}</style></head><body>"
        f"<h1>The words behind the labels</h1>{controls}<main>{sections}</main></body></html>\n"
    )


def _section(text: str, label: LabelExplanation) -> str:
    attentions = f", self-attention counts {label.alpha:.0%}, interaction {label.beta:.0%}"
    counted = attentions if label.alpha + label.beta else ", words weighed by what the score loses without them"
    heading = f"<h2>{escape(label.label)} <small>score {label.score:.3f}{counted}</small></h2>"
    if label.experts:
        loud = sorted(((share, name) for name, share in label.experts.items() if share >= 0.005), reverse=True)
        heading += f"<p>Evidence: {escape(', '.join(f'{name} {share:.0%}' for share, name in loud)) or 'none'}</p>"
    return f"<section>{heading}{''.join(_paragraph(text, label, kind) for kind in KINDS)}</section>"


def _paragraph(text: str, label: LabelExplanation, kind: str) -> str:
    weights = [float(getattr(word, kind)) for word in label.words]
    largest = max(weights, default=0.0) or 1.0
    pieces, position = [], 0
    for word, weight in zip(label.words, weights, strict=True):
        pieces.append(escape(text[position : word.start]))
        shown = escape(text[word.start : word.end])
        # Words below a twentieth of the strongest stay plain: the eye needs few colours.
        strong = weight >= largest / 20
        heat = f'<mark style="--w:{weight / largest:.2f}" title="{weight:.3f}">{shown}</mark>' if strong else shown
        pieces.append(heat)
        position = word.end
    pieces.append(escape(text[position:]))
    return f'<p class="{kind}">{"".join(pieces)}</p>'
