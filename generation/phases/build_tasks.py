"""Builds dealt to tasks: each works on blocks of problems, and the command makes files of it.

First the candidates of each masked LM are written, then blocks are worked on, both in tasks. The
command reads the blocks' rows in order, as it would get them from this process, so that files,
counts and all that looks at several blocks are the same.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from generation.config import Config
from generation.part_store import read_unit_parts, write_unit_part
from generation.phases.asking import candidates_of
from generation.problems.on_disk import block_sizes
from generation.records import Exclusion, exclusion_table
from generation.run_folder import RunFolder, require_versions, versions
from generation.signals.nonce_answers import NonceAnswers
from generation.signals.signal_columns import PllChanges
from generation.suggestions.ask import stores_of
from generation.suggestions.asked import Asked
from generation.suggestions.questions import Questions
from generation.suggestions.store import SuggestionStore
from generation.variants.builder import BlockResult, Builder
from generation.variants.candidates import Candidates
from generation.variants.funnel import Funnel
from merge_dataset.executors.calls import call_tasks, forget, plan_of, says
from merge_dataset.executors.plan import Distribution
from merge_dataset.settings import parse_toml

_TABLES: Final = ("replacements", "exclusions", "seeds", "variants")
_PACKAGES: Final = ("inflect", "merge-nli", "numpy", "spacy", "wordfreq")
"""Packages on which it depends what a block comes to."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a build reads beside its problems."""

    base: RunFolder
    config: Config
    mlms: Sequence[Mapping[str, Any]]
    """Records of the masked LMs used."""
    unablated: Path | None
    """Variants of the build whose eligible seeds an ablation keeps."""
    pll_changes: PllChanges | None
    nonce: NonceAnswers | None

    def stores(self) -> dict[str, SuggestionStore]:
        """Open the stores, by masked LM."""
        return stores_of(self.base, self.config, self.mlms)

    def asked(self) -> Asked:
        """Open the questions that were asked."""
        return Asked(Questions(self.base.questions), self.base.asked)

    def builder(self, candidates: Mapping[str, Candidates]) -> Builder:
        """Return what works on blocks."""
        return Builder(self.base.problems, candidates, self.config, self.unablated,
                       self.pll_changes, self.nonce)  # fmt: skip

    def to_plan(self) -> dict[str, Any]:
        """Return what tasks have to know, as JSON."""
        return {
            "base": str(self.base.path.absolute()),
            "config": self.config.with_absolute_paths().to_toml(),
            "mlms": list(self.mlms),
            "unablated": self.unablated and str(self.unablated.absolute()),
            "pll_changes": self.pll_changes and _absolute(asdict(self.pll_changes)),
            "nonce": self.nonce and _absolute(asdict(self.nonce)),
        }

    @classmethod
    def of_plan(cls, plan: Mapping[str, Any]) -> Inputs:
        """Read what `to_plan` made."""
        pll_changes, nonce = plan["pll_changes"], plan["nonce"]
        return cls(
            RunFolder(Path(plan["base"])),
            Config.from_mapping(parse_toml(plan["config"], "call.json")),
            plan["mlms"],
            plan["unablated"] and Path(plan["unablated"]),
            PllChanges(**_with_path(pll_changes)) if pll_changes else None,
            NonceAnswers(**_with_path(nonce)) if nonce else None,
        )


def _absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "path": str(Path(values["path"]).absolute())}


def _with_path(values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "path": Path(values["path"])}


@contextmanager
def block_results(
    inputs: Inputs, out: RunFolder, distribution: Distribution | None, *, made_from: Any
) -> Iterator[Iterator[BlockResult]]:
    """Give the results of all blocks, in order, made here or by tasks.

    What tasks made is kept until the context ends without an error, so that a build that was
    interrupted goes on.

    Args:
        inputs: What the build reads.
        out: Its folder.
        distribution: The tasks; None for this process.
        made_from: Contents of what is read, as JSON: with others, nothing is gone on with.

    Raises:
        ExecutorError: tasks failed.
    """
    folder = out.tasks("build")
    if distribution is None:
        with candidates_of(inputs.stores(), out, inputs.config, inputs.asked()) as candidates:
            yield inputs.builder(candidates).results()
    else:
        plan = {**inputs.to_plan(), "made_from": made_from, "packages": versions(*_PACKAGES)}
        yield _results_of_tasks(folder, plan, distribution.without_gpus())
    shutil.rmtree(folder, ignore_errors=True)


def _results_of_tasks(
    folder: Path, plan: Mapping[str, Any], distribution: Distribution
) -> Iterator[BlockResult]:
    """Have tasks write candidates and then work on blocks; yield what the blocks come to.

    Raises:
        ExecutorError: tasks failed.
        ValueError: tasks had different taggers, or what one wrote is damaged.
    """
    units = [f"candidates {number}" for number in range(len(plan["mlms"]))]
    call_tasks(f"{__name__}:candidates_unit", folder, units, distribution, plan).all()
    count = len(block_sizes(RunFolder(Path(plan["base"])).problems))
    units = [f"block {number}" for number in range(count)]
    said = call_tasks(f"{__name__}:block_unit", folder, units, distribution, plan).all()
    taggers = sorted({record["counts"]["tagger"] for record in said})
    if len(taggers) > 1:
        forget(folder, units)
        raise ValueError(
            f"tagger: expected the same in every task, got {' and '.join(taggers)}; install the "
            "same versions on all machines"
        )
    for unit, record in zip(units, said, strict=True):
        yield _result_of(read_unit_parts(folder, unit, record["parts"]), record["counts"])


# --- In a task ---


@says
def candidates_unit(folder: Path, unit: str) -> None:
    """Do a unit of work: write the candidates of a masked LM.

    Args:
        folder: That of the call.
        unit: "candidates", and the place of the masked LM.
    """
    inputs = Inputs.of_plan(plan_of(folder))
    number = int(unit.split()[1])
    target, store = _candidates(folder, number), list(inputs.stores().values())[number]
    shutil.rmtree(target, ignore_errors=True)  # of a task that was killed
    asked = inputs.asked()
    filtered = inputs.config.probability_filter
    Candidates.write(target, store, asked.questions, probability_filter=filtered, asked=asked)


@says
def block_unit(folder: Path, unit: str) -> dict[str, Any]:
    """Do a unit of work: write the rows of a block.

    Args:
        folder: That of the call.
        unit: "block", and its number.

    Returns:
        Names of the rows' files, and counts.

    Raises:
        ValueError: this machine has other versions of packages than the command's.
    """
    number = int(unit.split()[1])
    result = _builder(folder, json.dumps(plan_of(folder))).result(number)
    tables = (result.replacements, exclusion_table(result.exclusions), result.seeds,
              result.variants)  # fmt: skip
    parts = [
        write_unit_part(folder, f"{number:06}.{name}", table)
        for name, table in zip(_TABLES, tables, strict=True)
    ]
    counts = {
        "last": result.last,
        "is_last": result.is_last,
        "problems": result.problems,
        "funnel": result.funnel.counts(),
        "changes": [[*fate, count] for fate, count in result.changes.items()],
        "eligible": result.eligible,
        "tagger": result.tagger,
    }
    return {"parts": parts, "counts": counts}


@lru_cache(maxsize=1)
def _builder(folder: Path, text: str) -> Builder:
    """Return what works on blocks; a task has it once, with its tagger."""
    plan = json.loads(text)
    require_versions(plan["packages"])
    inputs = Inputs.of_plan(plan)
    questions = inputs.asked().questions
    return inputs.builder(
        {
            mlm: Candidates(_candidates(folder, number), questions, store)
            for number, (mlm, store) in enumerate(inputs.stores().items())
        }
    )


def _candidates(folder: Path, number: int) -> Path:
    return folder / "candidates" / str(number)


def _result_of(tables: Sequence[pa.Table], counts: Mapping[str, Any]) -> BlockResult:
    """Put together what `block_unit` took apart."""
    replacements, exclusions, seeds, variants = tables
    return BlockResult(
        last=counts["last"],
        is_last=counts["is_last"],
        problems=counts["problems"],
        replacements=replacements,
        exclusions=[Exclusion(**row) for row in exclusions.to_pylist()],
        seeds=seeds,
        variants=variants,
        funnel=Funnel.of(counts["funnel"]),
        changes=Counter({(what, of, fate): count for what, of, fate, count in counts["changes"]}),
        eligible=counts["eligible"],
        tagger=counts["tagger"],
    )
