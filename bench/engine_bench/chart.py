"""Bars of output tokens per second, as an SVG of its own: no drawing library for twelve rectangles. Pure."""

from typing import Any
from xml.sax.saxutils import escape

from scoreboard.statistics import median

SERIES = (
    ("ours", "ours", "#2563eb"),
    ("vllm", "vLLM-CPU", "#9ca3af"),
    ("transformers-serve", "transformers", "#d6d3d1"),
)
MODELS = (("58m", "58 M"), ("smollm2", "SmolLM2"))
CLIENTS = ("1", "8", "32")
WIDTH, HEIGHT, TOP, BASE, BAR, GAP, LEFT = 760, 300, 50, 250, 30, 14, 20


def draw(content: dict[str, Any]) -> str:
    """One group of bars for each model and number of clients that was measured."""
    groups = [
        (f"{title}, {clients}", bars)
        for model, title in MODELS
        for clients in CLIENTS
        if (bars := measured(content["seen"], model, clients))
    ]
    highest = max((value for _, bars in groups for _, value in bars), default=1.0)
    parts = [*_legend()]
    x = LEFT
    for label, bars in groups:
        width = len(bars) * BAR
        parts.append(_text(x + width / 2, BASE + 18, label))
        for color, value in bars:
            height = value / highest * (BASE - TOP - 10)
            top = BASE - height
            parts.append(f'<rect x="{x}" y="{top:.1f}" width="{BAR - 3}" height="{height:.1f}" fill="{color}"/>')
            parts.append(_text(x + (BAR - 3) / 2, top - 4, f"{value:.0f}"))
            x += BAR
        x += GAP
    return _svg(max(WIDTH, x), parts)


def measured(seen: dict[str, Any], model: str, clients: str) -> list[tuple[str, float]]:
    """Colour and median of each engine that was measured at this point."""
    found = []
    for key, _, color in SERIES:
        repeats = [
            one["outcomes"][clients] for one in seen.get(f"{model} {key}", []) if one and clients in one["outcomes"]
        ]
        if repeats:
            found.append((color, median([one["tokens_per_second"] for one in repeats])))
    return found


def _legend() -> list[str]:
    parts = [_text(LEFT, 16, "Output tokens/s by model and number of clients", anchor="start")]
    for place, (_, name, color) in enumerate(SERIES):
        x = 400 + place * 110
        parts.append(f'<rect x="{x}" y="7" width="10" height="10" fill="{color}"/>')
        parts.append(_text(x + 15, 16, name, anchor="start"))
    return parts


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(width: int, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" '
        'font-family="sans-serif" font-size="11">\n'
        f'<rect width="{width}" height="{HEIGHT}" fill="white"/>\n{body}\n</svg>\n'
    )
