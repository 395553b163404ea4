"""Tables of questions → tables of answers, row by row or column by column."""
