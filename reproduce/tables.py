"""What the scripts of this folder share: which commands a table of a paper is made of, running and resuming them, and the table.

A script describes its table as data (Table) and calls main(). Only the project's own binary is run; nothing is computed here but
sums for what is printed.
"""

import argparse
import functools
import hashlib
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[1]


# tau0 and t_low that the paper gives (docs/reset.md): said in the commands, so that neither a halfbyte_plan.json beside the
# weights nor a configuration that halfbyte does not recognise puts other values into the table.
PUBLISHED_RESET = {"R1-Qwen-7B": ("0.6446", "0.4"), "R1-Qwen-14B": ("0.6488", "0.3"), "Qwen3-8B": ("0.5505", "0.1"),
                   "Qwen3-14B": ("0.4863", "0.3"), "Qwen3-32B": ("0.5363", "0.1")}


@dataclass(frozen=True)
class Benchmark:
    questions: int          # how many the paper asks
    where: str              # what file it is, for whoever has to get it
    samples: int = 0        # answers to each question where not the table's
    code: bool = False      # answered by code, which only --allow-code runs


@dataclass(frozen=True)
class Row:
    arguments: tuple = ()   # of halfbyte eval: the plan and what else sets this row apart
    missing: str = ""       # what Halfbyte lacks for it; such a row is printed with the paper's figures and never run
    against: str = ""       # the row that token savings and changes refer to
    calibrated: bool = False  # takes tau0 of `halfbyte calibrate reset` where --prompts is given


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    paper: str
    models: dict            # name -> where its weights are
    benchmarks: dict        # name -> Benchmark
    rows: dict              # name -> Row
    samples: int
    max_tokens: int
    sampling: tuple         # arguments of halfbyte eval
    seed: int = 0
    figures: dict = field(default_factory=dict)  # (row, benchmark) -> the paper's percentages, in the order of `models`
    notes: tuple = ()


@dataclass
class Step:
    label: str
    command: list
    model: str              # its path
    record: pathlib.Path    # where the command and what it printed are kept
    tokens: int = 0         # the most that it may generate
    inputs: tuple = ()      # files that the result depends on


class Failure(Exception):
    pass


def find_binary(given):
    if given:
        return given
    for preset in ("release", "cuda", "dev"):
        path = ROOT / "build" / preset / "bin" / "halfbyte"
        if path.exists():
            return str(path)
    found = shutil.which("halfbyte")
    if not found:
        raise Failure("there is no halfbyte binary: build it (README.md) or name it with --halfbyte")
    return found


def file_part(text):
    return "".join(c if c.isalnum() or c in "-." else "-" for c in text)


def digest_of(paths):
    """Of small files wholly; of large ones (weights) their size, their first and their last 64 KiB."""
    digest, end = hashlib.sha256(), 1 << 16
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with open(path, "rb") as file:
            if size <= 32 * end:
                digest.update(file.read())
            else:
                digest.update(file.read(end))
                file.seek(-end, os.SEEK_END)
                digest.update(file.read())
    return digest.hexdigest()


# What every step of a run is made of is read once in it: a model of 32B has 15 GB, a question file may have one.

@functools.cache
def model_digest(path):
    """Of a model's file, or of the files of its folder."""
    path = pathlib.Path(path)
    return digest_of(sorted(p for p in path.iterdir() if p.is_file()) if path.is_dir() else [path])


@functools.cache
def inputs_digest(paths):
    """Of all bytes of the files, one behind the other."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


@functools.cache
def version_of(binary):
    """"halfbyte 0.1.0 (commit 378a1ee, ...)"."""
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as e:
        raise Failure(f"{binary} does not run: {e}") from e
    return said[0] if said else ""


def made_of(step):
    """What a kept result must match: the command, the files it reads, the model and the binary."""
    try:
        inputs, model = inputs_digest(step.inputs), model_digest(step.model)
    except OSError as e:
        raise Failure(f"{e.filename}: {e.strerror}") from e
    return {"command": step.command[1:], "inputs": inputs, "halfbyte": version_of(step.command[0]), "model": model}


def run(step):
    """Runs a step that has not been run; halfbyte itself goes on where a stopped one ended. Its progress goes to the terminal."""
    of, before = made_of(step), None
    try:
        before = json.loads(step.record.read_text())
    except (OSError, ValueError):
        pass
    if before and before["of"] == of and before["output"] is not None:
        print(f"have  {step.label}", flush=True)
        return before["output"]
    for what in ("halfbyte", "model"):
        # What is there, or half there, must not be mixed with what another would say.
        if before and before["of"].get(what) != of[what]:
            raise Failure(f"{step.record}: its results were made by another {what} ({before['of'].get(what)}, now {of[what]}); name another --out")
    print(f"run   {step.label}", flush=True)
    keep(step, of, None)
    done = subprocess.run(step.command, stdout=subprocess.PIPE, stderr=None if sys.stderr.isatty() else subprocess.PIPE, text=True)
    if done.returncode != 0:
        said = (done.stderr or "").strip().splitlines()
        raise Failure(said[-1] if said else f"halfbyte ended with code {done.returncode}")
    output = json.loads(done.stdout)
    keep(step, of, output)
    return output


def keep(step, of, output):
    """The record of a step: what it is made of, and what it printed, None while it runs."""
    step.record.parent.mkdir(parents=True, exist_ok=True)
    partial = step.record.with_name(step.record.name + ".partial")
    partial.write_text(json.dumps({"of": of, "output": output}, indent=1))
    partial.replace(step.record)


def pairs(values, allowed, flag):
    """["a=b", ...] as a dict; names that the table does not have are refused."""
    out = {}
    for value in values:
        name, separator, path = value.partition("=")
        if not separator or name not in allowed:
            raise Failure(f"{flag} {value}: expected NAME=PATH with NAME one of {', '.join(allowed)}")
        if not os.path.exists(path):
            raise Failure(f"{flag} {value}: there is no {path}")
        out[name] = path
    return out


def arguments(table):
    parser = argparse.ArgumentParser(description=f"{table.title} ({table.paper})", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=described(table))
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH", help="a model of the table; may come several times")
    parser.add_argument("--questions", action="append", default=[], metavar="NAME=FILE", help="a benchmark's file; may come several times")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("reproduced"), help="folder for results and the table (%(default)s)")
    parser.add_argument("--rows", help="only these rows, separated by commas")
    parser.add_argument("--limit", type=int, help="at most so many questions of a benchmark")
    parser.add_argument("--samples", type=int, help="answers to each question (default: the paper's)")
    parser.add_argument("--max-tokens", type=int, default=table.max_tokens, help="longest answer (%(default)s)")
    parser.add_argument("--prompts", help="calibrate tau0 of ReSET on these prompts, one a line")
    parser.add_argument("--allow-code", action="store_true", help="run the code of answers in a sandbox (docs/evaluation.md, Code)")
    parser.add_argument("--weak-sandbox", action="store_true", help="with --allow-code: also where this kernel gives no whole sandbox")
    parser.add_argument("--python", help="what runs the code of answers (default: halfbyte's)")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto (%(default)s)")
    parser.add_argument("--halfbyte", help="the binary (default: this tree's build, else the one on PATH)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and how much that is")
    return parser.parse_args()


def percent(mean, ci95):
    return f"{100 * mean:.2f} [{100 * ci95[0]:.2f}, {100 * ci95[1]:.2f}]"


def described(table):
    lines = ["models:"] + [f"  {name}: {where}" for name, where in table.models.items()]
    lines += ["benchmarks:"] + [f"  {name}: {b.questions} questions; {b.where}" for name, b in table.benchmarks.items()]
    lines += ["rows:"] + [f"  {name}: {'not possible yet: ' + row.missing if row.missing else shlex.join(row.arguments)}"
                          for name, row in table.rows.items()]
    return "\n".join(lines + [f"note: {note}" for note in table.notes])


class Reproduction:
    """One table with one user's models and files."""

    def __init__(self, table, options):
        self.table, self.options = table, options
        self.binary = find_binary(options.halfbyte)
        self.models = pairs(options.model, table.models, "--model")
        self.questions = pairs(options.questions, table.benchmarks, "--questions")
        if options.prompts and not os.path.exists(options.prompts):
            raise Failure(f"--prompts: there is no {options.prompts}")
        chosen = options.rows.split(",") if options.rows else list(table.rows)
        unknown = [name for name in chosen if name not in table.rows]
        if unknown:
            raise Failure(f"--rows: there is no row {unknown[0]}; the table has {', '.join(table.rows)}")
        self.rows = {name: table.rows[name] for name in chosen if not table.rows[name].missing}
        self.missing = {name: table.rows[name].missing for name in chosen if table.rows[name].missing}
        self.folder = options.out / table.name
        self.cells, self.failed = {}, {}   # (row, benchmark, model) -> output of eval, with "saved"; -> why there is none

    def asked(self, benchmark):
        with open(self.questions[benchmark], "rb") as lines:
            count = sum(1 for line in lines if line.strip())
        return min(count, self.options.limit or count)

    def samples(self, benchmark):
        return self.options.samples or self.table.benchmarks[benchmark].samples or self.table.samples

    def path(self, *parts, kind):
        return self.folder / f"{file_part('_'.join(parts))}.{kind}"

    def calibration(self, model):
        return Step(f"tau0 of {model}", [self.binary, "calibrate", "reset", self.models[model], "--prompts", self.options.prompts, "--plan",
                    "w4a4", "--seed", "42", "--device", self.options.device, "--json", "-o", str(self.path("plan", model, kind="json"))],
                    self.models[model], self.path("calibration", model, kind="record"), inputs=(self.options.prompts,))

    def evaluation(self, row, benchmark, model, extra=()):
        t, o = self.table, self.options
        results = str(self.path(row, benchmark, model, kind="jsonl"))
        extra = [word for pair in zip(extra[::2], extra[1::2]) if pair[0] not in self.rows[row].arguments for word in pair]
        command = [self.binary, "eval", self.models[model], "--questions", self.questions[benchmark], *self.sampling(row),
                   *self.rows[row].arguments, *extra, "--samples", str(self.samples(benchmark)), "--seed", str(t.seed),
                   "--max-tokens", str(o.max_tokens), "--device", o.device, "--json", "-o", results, *self.optional(benchmark)]
        return Step(f"{row}, {benchmark}, {model}", command, self.models[model], self.path(row, benchmark, model, kind="record"),
                    self.asked(benchmark) * self.samples(benchmark) * o.max_tokens, (self.questions[benchmark],))

    def optional(self, benchmark):
        """Arguments of eval and its sweep that were asked for here."""
        o, out = self.options, []
        if o.limit:
            out += ["--limit", str(o.limit)]
        if o.allow_code and self.table.benchmarks[benchmark].code:
            out += ["--allow-code", *(["--weak-sandbox"] if o.weak_sandbox else []), *(["--python", o.python] if o.python else [])]
        return out

    def sampling(self, row):
        """The table's, less what the row sets itself, and less the temperature where a policy chooses it."""
        own, out = self.rows[row].arguments, []
        for flag, value in zip(self.table.sampling[::2], self.table.sampling[1::2]):
            if flag not in own and not (flag == "--temperature" and "--policy" in own):
                out += [flag, value]
        return out

    def steps(self):
        return [self.evaluation(row, benchmark, model, self.published(model) if self.rows[row].calibrated else ())
                for model in self.models for benchmark in self.questions for row in self.rows]

    def announce(self):
        print(f"{self.table.title} ({self.table.paper})")
        for name, why in self.missing.items():
            print(f"not possible yet: {name}: {why}")
        for what, given, all_of in (("model", self.models, self.table.models), ("questions", self.questions, self.table.benchmarks)):
            left = [name for name in all_of if name not in given]
            if left:
                print(f"not given (--{what} NAME=PATH): {', '.join(left)}")
        code = [name for name in self.questions if self.table.benchmarks[name].code]
        if code and not self.options.allow_code:
            print(f"answered by code, which is not run without --allow-code: {', '.join(code)}")
        total = 0
        for step in self.steps():
            total += step.tokens
            print(f"{step.tokens:>15,} tokens at most: {shlex.join(step.command)}")
        print(f"{total:>15,} tokens at most in all, prompts not counted")

    def run_all(self):
        for model in self.models:
            try:
                extra, uncalibrated = self.calibrated(model), None
            except Failure as e:
                extra, uncalibrated = (), Failure(f"tau0 was not calibrated: {e}")
            for row, benchmark in ((r, b) for b in self.questions for r in self.rows):
                at = row, benchmark, model
                try:
                    if self.rows[row].calibrated and uncalibrated:
                        raise uncalibrated
                    self.cells[at] = dict(run(self.evaluation(*at, extra if self.rows[row].calibrated else ())))
                    self.compare(*at)
                except Failure as e:
                    self.failed[at] = str(e)
                    print(f"failed: {e}", file=sys.stderr)
                self.write()

    def calibrated(self, model):
        if not self.options.prompts or not any(row.calibrated for row in self.rows.values()):
            return self.published(model)
        return "--reset-tau0", repr(run(self.calibration(model))["tau0"]), *self.published(model)

    def published(self, model):
        """The paper's values of a model; not tau0 where --prompts calibrates it."""
        values = dict(zip(("--reset-tau0", "--reset-t-low"), PUBLISHED_RESET.get(model, ())))
        if self.options.prompts:
            values.pop("--reset-tau0", None)
        return tuple(word for pair in values.items() for word in pair)

    def compare(self, row, benchmark, model):
        against = self.rows[row].against
        if against not in self.rows or (against, benchmark, model) not in self.cells:
            return
        files = [self.path(name, benchmark, model, kind="jsonl") for name in (against, row)]
        done = subprocess.run([self.binary, "eval", "compare", *files, "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(done.stderr.strip())
        self.cells[row, benchmark, model]["versus"] = json.loads(done.stdout)["compared"][0]

    def figures_of(self, result):
        """What a cell says of its result, in order: accuracy in percent with its interval, then what it is against another row."""
        out = [percent(result["accuracy"], result["ci95"])]
        if "versus" in result:
            v = result["versus"]
            if v["ctir"]:  # none where the reference did not reason
                out.append(f"CTIR {v['ctir']['mean']:.3f}")
            out.append(f"tokens saved {100 * v['tokens_saved']['mean']:.2f}%")
        return out

    def cell(self, row, benchmark, model):
        """The figures of the result, then the paper's."""
        at, out = (row, benchmark, model), []
        if at in self.cells:
            out += self.figures_of(self.cells[at])
        elif at in self.failed:
            out.append("failed")
        figures = self.table.figures.get((row, benchmark))
        if figures and figures[list(self.table.models).index(model)] is not None:
            out.append(f"paper {figures[list(self.table.models).index(model)]}")
        return "; ".join(out) or "-"

    def conditions(self):
        """What the figures are, and what they were made with."""
        t, o = self.table, self.options
        sampling = f"{shlex.join(t.sampling)}, " if t.sampling else ""
        limit = f", at most {o.limit} questions" if o.limit else ""
        return (f"Seed {t.seed}, {sampling}answers of at most {o.max_tokens} tokens{limit}. Percent right, [95% interval over questions]; beside it the "
                "paper's figure, which other kernels, other draws and perhaps other weights made.")

    def heading(self, benchmark):
        samples = self.samples(benchmark)
        return f"{benchmark}, {samples} sample{'s' if samples > 1 else ''} a question"

    def markdown(self):
        t = self.table
        lines = [f"# {t.title}", "", f"{t.paper}. {self.conditions()}" if t.benchmarks else f"{t.paper}."]
        for benchmark in t.benchmarks:
            lines += ["", f"## {self.heading(benchmark)}", "", f"| | {' | '.join(t.models)} |", "|---" * (len(t.models) + 1) + "|"]
            for row in t.rows:
                mark = " (not possible yet)" if t.rows[row].missing else ""
                lines.append(f"| {row}{mark} | {' | '.join(self.cell(row, benchmark, model) for model in t.models)} |")
        if any(row.missing for row in t.rows.values()):
            lines += ["", "Not possible yet:"] + [f"- {name}: {row.missing}" for name, row in t.rows.items() if row.missing]
        if self.failed:
            lines += ["", "Failed:"] + [f"- {', '.join(at)}: {why}" for at, why in self.failed.items()]
        return "\n".join(lines + ["", *(f"- {note}" for note in t.notes)]) + "\n"

    def go(self):
        self.announce()
        if self.options.dry_run:
            return 0
        self.write()
        self.run_all()
        print(self.markdown(), end="")
        print(f"written to {self.folder / 'table.md'}", file=sys.stderr)
        return 1 if self.failed else 0

    def write(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "table.md").write_text(self.markdown())


def guarded(body):
    """Runs body(); a Failure becomes one line and code 2."""
    try:
        return body()
    except Failure as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read stdout went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as e:  # of a file that the user named
        print(f"error: {e.filename}: {e.strerror}" if e.filename else f"error: {e}", file=sys.stderr)
        return 2


def main(table):
    sys.exit(guarded(lambda: Reproduction(table, arguments(table)).go()))
