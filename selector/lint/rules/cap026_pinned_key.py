"""CAP026: an overlay that changes what is pinned."""

from selector.lint.catalogue import Rule
from selector.values import Severity

RULE = Rule(
    code="CAP026",
    name="pinned-key",
    severity=Severity.ERROR,
    what="An overlay changes a key that the entry lists under `pinned`.",
    why=(
        "Whoever pinned it knows what breaks. The finding says where it is pinned and why; the "
        "manifest itself is the place to change it."
    ),
    bad="""attnsel: 1
overlay: our-fleet
backends:
  - {name: paged, accepts: {head_size: any}}
""",
    good="""attnsel: 1
overlay: our-fleet
deny:
  - {backend: paged, when: {head_size: 64}, reason: Measured to be slow on our cards.}
""",
)
