from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from helpers.bench.contender import FOLDER, ROOT, Contender, Reply, spread
from helpers.processes import processor_flags

SECTIONS: Final = (
    "suggestions", "cost", "asking", "classifier", "accelerator", "language-model",
    "likelihoods", "metric", "made-up", "commands",
)  # fmt: skip


Clock = Literal["cpu", "wall"]


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    cpu: tuple[float, ...]
    wall: tuple[float, ...]
    peak_mb: float | None
    units: float
    """Units of work in each round."""
    versions: dict[str, str]

    @classmethod
    def of(cls, name: str, replies: Sequence[Reply], units: float, clock: Clock = "cpu") -> Self:
        return cls(
            name,
            tuple(getattr(reply, clock) / units for reply in replies),
            tuple(reply.wall / units for reply in replies),
            max(reply.peak_mb for reply in replies),
            units,
            dict(replies[-1].versions),
        )

    def beyond(self, part: Side, name: str) -> Side:
        """The work of this side without a part of it that was measured beside it."""
        cpu = tuple(a - b for a, b in zip(self.cpu, part.cpu, strict=True))
        wall = tuple(a - b for a, b in zip(self.wall, part.wall, strict=True))
        return Side(name, cpu, wall, self.peak_mb, self.units, self.versions)


@dataclass(frozen=True, slots=True)
class Asked:
    contender: Contender
    rows: Sequence[int]
    replies: list[Reply]
    clock: Clock

    @property
    def side(self) -> Side:
        return Side.of(self.contender.name, self.replies, len(self.rows), self.clock)

    @property
    def answer(self) -> Any:
        return self.replies[0].answer

    @property
    def answers(self) -> dict[int, Any]:
        return dict(zip(self.rows, self.answer, strict=True))


def race(
    contenders: Sequence[Contender],
    units: int,
    *,
    rounds: int,
    budget: float | None = None,
    yardsticks: Sequence[Contender] = (),
    whole: int = 0,
    clock: Clock = "cpu",
    fewest: int = 8,
    trials: int = 2,
) -> list[Asked]:
    """Ask all in turn, once per round, so that other load affects all of them alike.

    With a budget, the first `whole` contenders are asked about all units, by their rows, and others
    about some for `budget` seconds; short, noisy turns are repeated. Yardsticks come last.
    """
    turns: list[tuple[Contender, Sequence[int], dict[str, Any]]] = []
    with ExitStack() as running:
        for number, contender in enumerate(contenders):
            running.enter_context(contender)
            if budget is None:
                turns.append((contender, range(units), {}))
                continue
            rows = spread(range(units), fewest)
            for _ in range(trials):  # the first does setup work; batches grow with the rows
                item = getattr(contender.ask(rows=rows), clock) / len(rows)
                some = max(fewest, int(budget / item))
                rows = spread(range(units), units if number < whole else some)
            contender.ask(rows=rows)
            times = max(1, int(budget / 10 / (item * len(rows))))
            turns.append((contender, rows, {"rows": rows, "times": times}))
        for yardstick in yardsticks:
            running.enter_context(yardstick)
            item = getattr(yardstick.ask(times=3), clock)
            turns.append((yardstick, [0], {"times": max(3, int((budget or 10) / 10 / item))}))
        replies = [
            [c.ask(**c.request, **request) for c, _, request in turns] for _ in range(rounds)
        ]
    of_turns = zip(turns, zip(*replies, strict=True), strict=True)
    return [Asked(contender, rows, list(got), clock) for (contender, rows, _), got in of_turns]


Race = Callable[..., list[Asked]]
"""`race` with its rounds."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, and whether it was reached; shown, not asserted, as timing is noisy."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    ours: Side
    theirs: Side | None = None
    unit: str = ""
    at_least: float | None = None
    """The ratio that is the goal."""
    goals: tuple[Goal, ...] = ()
    agreement: str = ""
    """How far the outputs agree; if they must be equal, the test asserts it."""
    flop: float = 0.0
    """Operations per unit in matrix products, if known."""
    packed: float = 0.0
    """Operations per CPU second of the same core in packed products of that shape."""

    @property
    def shares(self) -> list[float]:
        """Shares of `packed` that both sides reach; empty if it is not known."""
        if not self.packed:
            return []
        sides = [side for side in (self.ours, self.theirs) if side]
        return [self.flop / statistics.median(side.cpu) / self.packed for side in sides]

    @property
    def ratios(self) -> list[float]:
        """Their CPU seconds divided by ours, round by round."""
        if self.theirs is None:
            return []
        return [t / o for t, o in zip(self.theirs.cpu, self.ours.cpu, strict=True)]

    @property
    def noise(self) -> float:
        """The larger side's half range of CPU seconds over the rounds, divided by its median."""
        sides = [side.cpu for side in (self.ours, self.theirs) if side]
        return max((max(cpu) - min(cpu)) / 2 / abs(statistics.median(cpu)) for cpu in sides)


@dataclass(frozen=True, slots=True)
class Measurement:
    section: str
    name: str
    load_before: float = field(default_factory=lambda: os.getloadavg()[0])

    def write(self, rows: Sequence[Row]) -> None:
        """Write the rows to a separate file, and renew the table of all measurements."""
        assert self.section in SECTIONS
        folder = FOLDER / "rows"
        folder.mkdir(parents=True, exist_ok=True)
        result = {
            "section": self.section, "name": self.name, "date": time.strftime("%Y-%m-%d %H:%M"),
            "commit": commit(), "machine": machine(), "rows": [_in_json(row) for row in rows],
            "load": [round(self.load_before, 1), round(os.getloadavg()[0], 1)],
        }  # fmt: skip
        _write(folder / f"{self.section}-{self.name}.json", json.dumps(result, indent=1))
        merge()
        print("", *(_line(row, result) for row in result["rows"]), sep="\n")


def merge() -> str:
    """Write `results.json` and `results.md` from all measurements; return the latter's text."""
    files = sorted((FOLDER / "rows").glob("*.json"))
    result = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    result.sort(key=lambda measurement: SECTIONS.index(measurement["section"]))
    text = table(result)
    _write(FOLDER / "results.json", json.dumps(result, indent=1))
    _write(FOLDER / "results.md", text)
    return text


def table(measurements: Sequence[dict[str, Any]]) -> str:
    lines = [_line(row, m) for m in measurements for row in m["rows"]]
    return "\n".join([*_HEAD, *lines, "", *_notes(measurements), ""])


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.exists() else ""
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return {
        "cpu": name[1] if name else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "instructions": sorted(processor_flags() & _MATTERING),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "torch_threads": 1,
    }  # fmt: skip


def has_bfloat16() -> bool:
    """Whether the processor has instructions for bfloat16; without them, it is far slower."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(machine()["instructions"])


_MATTERING: Final = frozenset({"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16"})

_HEAD: Final = (
    "# Benchmarks",
    "",
    "Ratio: their CPU seconds for a unit over ours, median and range over the rounds, in which the "
    "contenders take turns. Each has a process of its own with one thread; peak is the largest "
    "resident set of that process. Unit: in brackets, how many our turn has, and theirs. Noise: "
    "half the range over the rounds, of whichever side varies more. Load: of the machine before "
    "and after. Share: of the operations in a CPU second that the same core reaches in packed "
    "matrix products of the model's shape and type, measured in turn with the contenders. Counted "
    "are the layers' products and the head's, so that 100 % leaves no time for anything else.",
    "",
    "| what | against | ratio | share ours, theirs | goal | unit | CPU ours | theirs | wall ours "
    "| theirs | peak ours | theirs | noise | load | agreement |",
    "|" + "---|" * 15,
)


def _line(row: dict[str, Any], measurement: dict[str, Any]) -> str:
    ours, theirs, ratio = row["ours"], row["theirs"], row["ratio"]
    cells = [
        f"{row['what']}: {ours['name']}",
        theirs["name"] if theirs else "",
        f"**{ratio['median']:.3g}×** ({ratio['low']:.3g}–{ratio['high']:.3g})" if ratio else "",
        ", ".join(f"{share:.0%}" for share in row.get("shares", ())),
        ", ".join(f"{g['text']} {'met' if g['met'] else '**not met**'}" for g in row["goals"]),
        f"{row['unit']} (" + ", ".join(f"{s['units']:,}" for s in (ours, theirs) if s) + ")",
        *(_seconds(statistics.median(side[clock])) if side else "" for clock in ("cpu",
            "wall") for side in (ours, theirs)),
        *(f"{s['peak_mb']:,.0f} MB" if s and s["peak_mb"] else "" for s in (ours, theirs)),
        f"±{row['noise']:.0%}" if len(ours["cpu"]) > 1 else "one round",
        " → ".join(f"{load:g}" for load in measurement["load"]),
        row["agreement"],
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def _notes(measurements: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield machines, versions and dates, each once, as most rows share them."""
    for m in _distinct(m["machine"] for m in measurements):
        yield (
            f"- Machine: {m['cpu']}, {m['cores']} cores, {' '.join(m['instructions'])}, "
            f"{m['memory_gb']} GB, {m['system']}; {m['torch_threads']} thread per process."
        )
    sides = [s for m in measurements for r in m["rows"] for s in (r["ours"], r["theirs"]) if s]
    for versions in _distinct(side["versions"] for side in sides):
        names = dict.fromkeys(s["name"] for s in sides if s["versions"] == versions)
        listed = ", ".join(f"{package} {version}" for package, version in versions.items())
        yield f"- {'; '.join(names)}: {listed}."
    for commit in _distinct(m["commit"] for m in measurements):
        mine = [m for m in measurements if m["commit"] == commit]
        dates = sorted(m["date"] for m in mine)
        names = ", ".join(f"{m['section']} {m['name']}" for m in mine)
        yield f"- Commit {commit}, {dates[0]} to {dates[-1]}: {names}."


def _in_json(row: Row) -> dict[str, Any]:
    ratios = row.ratios
    ratio = {"median": statistics.median(ratios), "low": min(ratios), "high": max(ratios),
             "rounds": ratios} if ratios else None  # fmt: skip
    goals = list(map(asdict, row.goals))
    if row.at_least is not None:
        goals.append({"text": f"≥ {row.at_least:g}×", "met": ratio["median"] >= row.at_least})
    return asdict(row) | {
        "ratio": ratio, "goals": goals, "noise": row.noise, "shares": row.shares
    }  # fmt: skip


def _seconds(value: float) -> str:
    scale, unit = next(
        ((s, u) for s, u in ((1, "s"), (1e3, "ms"), (1e6, "µs")) if abs(value) * s >= 1),
        (1e9, "ns"),
    )
    return f"{value * scale:,.3g} {unit}"


def _distinct(items: Iterable[Any]) -> list[Any]:
    return list({json.dumps(item): item for item in items}.values())


def commit() -> str:
    """Short name of the commit, with a `+` if there are uncommitted changes."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=9", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
