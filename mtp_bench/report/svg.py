"""A drawing that may stand inside a page: an SVG made again from the few elements and attributes that a chart needs."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"
_ELEMENTS = frozenset({"g", "line", "path", "rect", "text", "tspan"})
_GEOMETRY = frozenset({"d", "transform", "x", "y", "x1", "x2", "y1", "y2", "dy", "width", "height"})
_STYLE = frozenset(
    {"fill", "fill-opacity", "font-size", "font-weight", "opacity", "stroke", "stroke-dasharray", "stroke-width"}
    | {"stroke-linecap", "text-anchor"}
)


def redrawn(svg: str, label: str) -> str:
    """``svg`` without scripts, links, styles, identifiers and metadata, as one picture that is called ``label``.

    Nothing of the original is copied as text: what a chart does not need has no way into the result, and texts are
    escaped by the serialiser; no colour is a reference. Coordinates are rounded to a tenth of a pixel.
    """
    source = ElementTree.fromstring(svg)
    target = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "role": "img",
            "aria-label": label,
            "width": source.attrib["width"],
            "height": source.attrib["height"],
            "viewBox": source.attrib["viewBox"],
        },
    )
    _copy(source, target)
    return ElementTree.tostring(target, encoding="unicode")


def _copy(source: ElementTree.Element, target: ElementTree.Element) -> None:
    for child in source:
        name = child.tag.removeprefix(_SVG)
        if name not in _ELEMENTS or child.get("display") == "none":
            continue
        attributes = {key: _rounded(value) for key, value in child.items() if key in _GEOMETRY}
        attributes |= {key: value for key, value in child.items() if key in _STYLE and "(" not in value}
        made = ElementTree.Element(name, attributes)
        _copy(child, made)
        made.text = child.text
        if name == "g" and not attributes:
            target.extend(made)
        elif (name != "g" or len(made)) and (name != "path" or made.get("d")):
            target.append(made)


def _rounded(text: str) -> str:
    return re.sub(r"-?\d+\.\d+(?:e-?\d+)?", lambda found: f"{round(float(found[0]), 1) + 0.0:g}", text)
