"""The row a caller gets; it is the vocabulary's own."""

from streamer.event.result_item import ItemFailure, ResultItem

__all__ = ["ItemFailure", "ResultItem"]
