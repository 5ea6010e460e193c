# SPDX-License-Identifier: Apache-2.0
"""A check that samples are readable in both schemes.

The build warns of each colour of the styles in ``conf.py`` whose contrast to
its background is below 4.5:1, the minimum of WCAG 2 for text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pygments.styles import get_style_by_name
from sphinx.application import Sphinx
from sphinx.util import logging

MINIMUM = 4.5

LOG = logging.getLogger(__name__)


def _luminance(colour: str) -> float:
    """Return the relative luminance of ``rgb`` or ``rrggbb``."""
    digits = colour.lstrip('#')
    if len(digits) == 3:
        digits = ''.join(digit * 2 for digit in digits)
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (int(digits[at:at + 2], 16) / 255 for at in (0, 2, 4)))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def ratio(colour: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21."""
    dark, light = sorted(map(_luminance, (colour, other)))
    return (light + 0.05) / (dark + 0.05)


def find_faint(style: str) -> Iterator[tuple[str, float]]:
    """Yield the tokens of a style of Pygments that are hard to read."""
    found = get_style_by_name(style)
    for token, how in found:
        if how['color']:
            contrast = ratio(how['color'],
                             how['bgcolor'] or found.background_color)
            if contrast < MINIMUM:
                yield str(token), contrast


def _check(app: Sphinx) -> None:
    # The theme, which has the dark style, is loaded for pages only.
    if app.builder.format != 'html':
        return
    for style in (app.config.pygments_style, app.config.pygments_dark_style):
        for token, contrast in find_faint(style):
            LOG.warning('style %s: %s has a contrast of only %.2f:1',
                        style, token, contrast)


def setup(app: Sphinx) -> dict[str, Any]:
    """Check the styles when the pages are built."""
    app.connect('builder-inited', _check)
    return {'parallel_read_safe': True, 'parallel_write_safe': True}
