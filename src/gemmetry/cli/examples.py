"""Three examples for every command: what each does, and the line that does it.

Help and the reference page show them; a test parses each line, and runs what needs no device.
"""

from __future__ import annotations

from typing import TypeAlias

Example: TypeAlias = tuple[str, str]

EXAMPLES: dict[str, tuple[Example, Example, Example]] = {
    "": (
        ("What this machine can do:", "gemmetry doctor"),
        ("Every provider that works here on one product:",
         "gemmetry profile --shapes 1024x1024x1024 --dtypes f32"),
        ("What GPUs did in a trace:", "gemmetry trace summary trace.json.gz"),
    ),
    "profile": (
        ("A first run, in less than a minute:", "gemmetry profile"),
        ("A sweep, two providers, tables for later:",
         "gemmetry profile --problem-m 64:1024:128 --problem-n 512 --problem-k 4096 \\\n"
         "  --providers torch,iree -o sweep.csv,sweep.json"),
        ("A kernel of your own against torch:",
         "gemmetry profile --kernel my_gemm.py:function --shapes 512x512x512"),
    ),
    "generate": (
        ("The dispatch profiler's 109 dispatches:", "gemmetry generate --generated-dir here"),
        ("One shape in all configurations of the CPU:",
         "gemmetry generate --device cpu --problem-m 768 --problem-n 512 \\\n"
         "  --problem-k 1024 --generated-dir here"),
        ("Which files and dispatches that would be:",
         "gemmetry generate --device hip-gfx942 --dry-run"),
    ),
    "compile": (
        ("What generate wrote:", "gemmetry compile --generated-dir here"),
        ("GPU code without a GPU, with registers and spills:",
         "gemmetry compile --providers triton --device cuda-sm_90 \\\n"
         "  --shapes 4096x4096x4096 --dtypes f16"),
        ("One configuration by its name:",
         "gemmetry compile --device cpu --dispatches \\\n"
         "  matmul_512x512x512_f32t_f32t_f32t_data_tiling"),
    ),
    "verify": (
        ("Prove dispatches right, time nothing:", "gemmetry verify run --shapes 257x129x65"),
        ("All checks there are:",
         "gemmetry verify run --shapes 512x512x512 --verification-level paranoid"),
        ("Whether the checks find planted bugs:", "gemmetry verify self-test"),
    ),
    "verify run": (
        ("A first run's shapes:", "gemmetry verify run"),
        ("A kernel of your own, thoroughly:",
         "gemmetry verify run --kernel my_gemm.py:function --shapes 257x129x65 \\\n"
         "  --verification-level paranoid"),
        ("Every tile of IREE in bf16:",
         "gemmetry verify run --providers iree --dtypes bf16 \\\n"
         "  --dispatches 'configuration=tile_config_*'"),
    ),
    "verify self-test": (
        ("All that runs here:", "gemmetry verify self-test"),
        ("Only the right kernels that look wrong:", "gemmetry verify self-test --mutants 'ok*'"),
        ("Fewer checks, scores in a file:",
         "gemmetry verify self-test --level quick -o score.md"),
    ),
    "trace": (
        ("What the GPU did, step by step:", "gemmetry trace summary trace.json.gz --steps"),
        ("Stragglers of a job:", "gemmetry trace collectives job/"),
        ("A page with a timeline:", "gemmetry trace report job/ -o job.html"),
    ),
    "trace record": (
        ("The grid tracing document's grid:", "gemmetry trace record --experiment my-grid"),
        ("One size in two formats:",
         "gemmetry trace record --matrix-sizes 1024 --precisions fp32,bf16 \\\n"
         "  --experiment small"),
        ("More repeats of what is there:",
         "gemmetry trace record --experiment my-grid --repeat-count 30"),
    ),
    "trace summary": (
        ("One trace:", "gemmetry trace summary trace.json.gz"),
        ("With each step that the profiler marked:",
         "gemmetry trace summary trace.json.gz --steps"),
        ("All traces of a folder as a table:", "gemmetry trace summary job/ -o summary.csv"),
    ),
    "trace gemms": (
        ("The ten that take longest:", "gemmetry trace gemms trace.json.gz --top 10"),
        ("All of a job, in a workbook:", "gemmetry trace gemms job/ -o gemms.xlsx"),
        ("For a program:", "gemmetry trace gemms trace.json.gz --json"),
    ),
    "trace shapes": (
        ("A tuning job of a trace:", "gemmetry trace shapes trace.json.gz -o shapes.yaml"),
        ("Measured at once:",
         "gemmetry trace shapes trace.json.gz --spec | gemmetry profile --spec -"),
        ("The five that take longest:", "gemmetry trace shapes trace.json.gz --top 5"),
    ),
    "trace collectives": (
        ("Ranks of a job side by side:", "gemmetry trace collectives job/"),
        ("A row for each kind of collective:",
         "gemmetry trace collectives job/ --rows kinds -o kinds.csv"),
        ("Two ranks:", "gemmetry trace collectives rank0.json.gz rank1.json.gz"),
    ),
    "trace report": (
        ("A page with a timeline:", "gemmetry trace report trace.json.gz -o trace.html"),
        ("TraceLens' sheets and ours:", "gemmetry trace report job/ -o job.xlsx"),
        ("Several files at once:", "gemmetry trace report job/ -o job.html,job.json"),
    ),
    "list": (
        ("Who can compute here, or why not:", "gemmetry list providers"),
        ("Configurations of a shape:",
         "gemmetry list configurations --shapes 512x512x512 --providers iree"),
        ("Every column of the tables:", "gemmetry list columns"),
    ),
    "list providers": (
        ("On the terminal:", "gemmetry list providers"),
        ("For a program:", "gemmetry list providers --json"),
        ("In a file:", "gemmetry list providers -o providers.md"),
    ),
    "list support": (
        ("On the terminal:", "gemmetry list support"),
        ("For a program:", "gemmetry list support --json"),
        ("In two files:", "gemmetry list support -o support.csv,support.html"),
    ),
    "list dtypes": (
        ("On the terminal:", "gemmetry list dtypes"),
        ("For a program:", "gemmetry list dtypes --json"),
        ("In a file:", "gemmetry list dtypes -o dtypes.csv"),
    ),
    "list columns": (
        ("On the terminal:", "gemmetry list columns"),
        ("For a program:", "gemmetry list columns --json"),
        ("In a file:", "gemmetry list columns -o columns.md"),
    ),
    "list operations": (
        ("Of a sweep, with FLOPs and bytes:",
         "gemmetry list operations --problem-m 64:1024:128 --problem-n 512 \\\n"
         "  --problem-k 4096"),
        ("Of a preset:", "gemmetry list operations --shapes llm --dtypes bf16"),
        ("Of a spec:", "gemmetry list operations --spec study.yaml"),
    ),
    "list configurations": (
        ("Of every provider:", "gemmetry list configurations --shapes 512x512x512"),
        ("For a GPU that is not here:",
         "gemmetry list configurations --providers iree --device hip-gfx942"),
        ("Only some:",
         "gemmetry list configurations --dispatches '*_vector8x32x*' --limit 20"),
    ),
    "report": (
        ("The table of an experiment again:", "gemmetry report gemmetry-out/profile-1234"),
        ("Against another baseline:",
         "gemmetry report gemmetry-out/profile-1234 --baseline numpy"),
        ("The old dispatch profiler's CSV:",
         "gemmetry report gemmetry-out/profile-1234 -o data.csv \\\n"
         "  --columns dispatch-profiler"),
    ),
    "show": (
        ("Everything about one dispatch:",
         "gemmetry show gemmetry-out/profile-1234 \\\n"
         "  iree:matmul_512x512x512_f32t_f32t_f32t_default"),
        ("By a part of its name:", "gemmetry show gemmetry-out/profile-1234 data_tiling"),
        ("For a program:", "gemmetry show gemmetry-out/profile-1234 'torch:*' --json"),
    ),
    "merge": (
        ("Two runs into one folder:", "gemmetry merge monday tuesday --into both"),
        ("All of a folder:", "gemmetry merge gemmetry-out/profile-* --into all"),
        ("And the table of them:",
         "gemmetry merge monday tuesday --into both && gemmetry report both"),
    ),
    "compare": (
        ("Before and after, exit status 1 on a regression:", "gemmetry compare before after"),
        ("Differences below 5 % do not count:",
         "gemmetry compare before after --threshold 5%"),
        ("The dispatches of one run with torch's:", "gemmetry compare run --baseline torch"),
    ),
    "cache": (
        ("What your runs left:", "gemmetry cache clear"),
        ("And that of one trace:", "gemmetry cache clear trace.json.gz"),
        ("That of a folder's traces:", "gemmetry cache clear job/"),
    ),
    "cache clear": (
        ("What your runs left:", "gemmetry cache clear"),
        ("And that of one trace:", "gemmetry cache clear trace.json.gz"),
        ("That of a folder's traces:", "gemmetry cache clear job/"),
    ),
    "doctor": (
        ("On the terminal:", "gemmetry doctor"),
        ("For a program:", "gemmetry doctor --json"),
        ("To send along with a report of a bug:", "gemmetry doctor -o machine.md"),
    ),
    "schema": (
        ("For the editor that writes a spec:", "gemmetry schema spec -o spec.schema.json"),
        ("On the terminal:", "gemmetry schema"),
        ("Of what --json prints:", "gemmetry schema results"),
    ),
}  # fmt: skip
"""Command, without ``gemmetry``, -> its examples; "" for ``gemmetry`` itself."""


def examples_of(command_path: str) -> tuple[Example, ...]:
    """The examples of the command ``gemmetry ...``; none for one that is not ours."""
    program, _, command = command_path.partition(" ")
    return EXAMPLES.get(command, ()) if program == "gemmetry" else ()
