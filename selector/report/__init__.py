"""Answers as text, tables, markdown and JSON. Wording only: every value shown was decided before.

Text is made from the same codes and values that JSON carries, so that both always agree.
"""
