"""Finds the ends of records of CSV: the line feeds outside of quotes.

A quote opens only at the beginning of a field, and inside of quotes two of them mean one. If every quote is where it
should be (an opening one behind a separator, a closing one in front of one), a line feed is outside exactly if an even
number of quotes is before it, which arrays show at once. Otherwise fields are found one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.connectors.files.record_file import Indices


@dataclass(frozen=True)
class RecordEnds:
    """Finds the ends of CSV records. `quote` or `escape` None: there is none. All three are single bytes."""

    separator: bytes
    quote: bytes | None
    escape: bytes | None

    def find(self, data: bytes) -> Indices:
        """Find the line feeds that end records.

        Args:
            data: Text that begins with a record.

        Returns:
            The offsets behind these line feeds.
        """
        found = np.frombuffer(data, np.uint8)
        line_feeds: Indices = np.flatnonzero(found == 0x0A)
        has_escapes = self.escape is not None and self.escape in data
        if not has_escapes and (self.quote is None or self.quote not in data):
            return line_feeds + 1
        if not has_escapes and self.quote is not None:
            quotes = np.flatnonzero(found == self.quote[0])
            if self._is_regular(found, quotes):
                outside: Indices = line_feeds[np.searchsorted(quotes, line_feeds) % 2 == 0]
                return outside + 1
        spans = [(m.start("quoted") if m["quoted"] is not None else m.start(), m.end()) for m in self._spans(data)]
        if not spans:
            return line_feeds + 1
        starts, ends = np.array(spans).T
        last = np.searchsorted(starts, line_feeds, side="right") - 1
        outside = line_feeds[(last < 0) | (line_feeds >= ends[np.maximum(last, 0)])]
        return outside + 1

    def _is_regular(self, found: np.ndarray, quotes: Indices) -> bool:
        quote = found[quotes[0]]
        around = np.zeros(256, bool)
        around[[self.separator[0], 0x0A, 0x0D, quote]] = True
        opening, closing = quotes[::2], quotes[1::2]
        before = found[opening[opening > 0] - 1]
        after = found[closing[closing < len(found) - 1] + 1]
        return bool(around[before].all() and around[after].all())

    def _spans(self, data: bytes) -> list[re.Match[bytes]]:
        return list(self._span.finditer(data))

    @cached_property
    def _span(self) -> re.Pattern[bytes]:
        """Match the spans whose line feeds end no record: quoted fields, and escaped characters."""
        quote = re.escape(self.quote) if self.quote else None
        escape = re.escape(self.escape) if self.escape else None
        parts = []
        if escape:
            parts.append(escape + rb".")
        if quote:
            inside = rb"[^" + quote + (escape or b"") + rb"]++|" + quote + quote
            inside += rb"|" + escape + rb"." if escape else b""
            field = rb"(?P<quoted>" + quote + rb"(?:" + inside + rb")*+" + quote + rb"?)"
            parts.append(rb"(?:\A|[" + re.escape(self.separator) + rb"\r\n])" + field)
        else:
            parts.append(rb"(?P<quoted>(?!))")
        return re.compile(rb"|".join(parts), re.DOTALL)
