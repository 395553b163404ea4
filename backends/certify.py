"""How claims are checked."""
