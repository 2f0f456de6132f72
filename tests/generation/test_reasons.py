import re
from pathlib import Path

import generation
from docs.site.build import for_site
from generation.paraphrases.rounds import ParaphraseReason
from generation.variants.reasons import REASONS, Reason


def test_every_reason_says_what_it_means() -> None:
    assert all(re.fullmatch("[a-z]+(_[a-z]+)*", reason) for reason in Reason)
    assert len({reason.sentence for reason in Reason}) == len({*Reason}) == len(REASONS)
    for reasons, name in ((Reason, "README.md"), (ParaphraseReason, "paraphrases/README.md")):
        page = Path(generation.__file__).parent / name
        text = for_site(page.read_text("utf-8"), page)
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
        listed = [(str(reason), reason.step, reason.sentence) for reason in reasons]
        assert [row for row in rows if row in listed] == listed
    for step in ("candidates", "asking", "one text", "all texts", "context", "signals"):
        functions = [reason.drops for reason in Reason.of_steps(step)]
        assert len({*functions} - {Reason.TOO_FEW.drops}) == len(functions) > 0
