"""Everything that can be said of whole manifests: over all questions, not over samples.

- The questions: ``space`` (classes of values), ``diagram`` (one kind of question at a time),
  ``counting`` and ``survey`` (how many come to what), ``regions`` and ``cutting`` (boxes that a
  person can read), ``witness`` (a question that can be asked).
- One manifest: ``gaps``, ``narrowing`` (on one device); ``proving`` (promises), with ``routes``
  (rules that could break one by a path), ``examples``, ``known`` and ``faults``.
- Two manifests: ``comparing``, ``causes`` (which rules a change comes from), ``stating`` (what
  decides nothing), ``rerouting`` (known models; paths that are drawn).
- Paths of requests, counted: ``paths``, of ``tails`` (what follows once the backends are chosen),
  ``lengths`` (which go together) and ``growing`` (several diagrams joined).
- ``bounds``: what draws allow to say of what was not counted.
"""
