"""Operations as assumptions plus pending changes; one verb per file."""
