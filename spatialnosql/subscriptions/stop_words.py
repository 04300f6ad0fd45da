"""Words that say nothing of what a text is about: articles, pronouns, auxiliaries, prepositions, conjunctions."""

from __future__ import annotations

_ENGLISH = """
a an the
i me my mine myself we us our ours ourselves you your yours yourself yourselves
he him his himself she her hers herself it its itself they them their theirs themselves
this that these those who whom whose which what
am is are was were be been being have has had having do does did doing
will would shall should can could may might must
and or not but nor if then else because as while so than though although
of at by for with without about against between into through during before after above below
to from up down in out on off over under again further once upon onto
here there when where why how all any both each few more most other some such only own same too very
no just also ever yet
s t d ll m re ve don doesn didn isn aren wasn weren hasn haven hadn won wouldn shouldn couldn ain
"""

ENGLISH: frozenset[str] = frozenset(_ENGLISH.split())
"""What is left of "isn't" or "they'll" once the apostrophe has parted them is among them."""
