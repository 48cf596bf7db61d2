"""A method is data: five slots in a frozen record, and a catalogue on one page."""

from headway.methods.method import Method, combine
from headway.methods.spelling import method

__all__ = ["Method", "combine", "method"]
