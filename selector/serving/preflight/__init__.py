"""Whether a serve command will start, and the smallest change after which it does."""
