"""Operations on a table, committed by one compare-and-swap."""

from lakehouse.transaction.commit import Committed
from lakehouse.transaction.transaction import Transaction

__all__ = ["Committed", "Transaction"]
