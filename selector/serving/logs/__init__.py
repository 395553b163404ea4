"""An engine's log, read: the attention errors in it and what it says of the engine."""
