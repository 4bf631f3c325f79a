"""Three examples for every command: what each does, and the line that does it.

Help and the reference page show them; a test parses each line, and runs what needs no device.
"""

from __future__ import annotations

from typing import TypeAlias

Example: TypeAlias = tuple[str, str]

EXAMPLES: dict[str, tuple[Example, Example, Example]] = {
    "": (
        ("What this machine can do:", "gemmetry doctor"),
        ("One product with every provider that works here:",
         "gemmetry profile --shapes 1024x1024x1024 --dtypes f32"),
        ("What the GPUs did in a trace:", "gemmetry trace summary trace.json.gz"),
    ),
    "profile": (
        ("A first run, in less than a minute:", "gemmetry profile"),
        ("A sweep with two providers, saved as tables:",
         "gemmetry profile --problem-m 64:1024:128 --problem-n 512 --problem-k 4096 \\\n"
         "  --providers torch,iree -o sweep.csv,sweep.json"),
        ("Your own kernel compared with torch:",
         "gemmetry profile --kernel my_gemm.py:function --shapes 512x512x512"),
    ),
    "tune": (
        ("The fastest Triton tiles of two shapes, as a table for the dispatcher:",
         "gemmetry tune --provider triton --shapes 4096x4096x4096,16x14336x4096 \\\n"
         "  --dtypes bf16 --layouts tn -o table.json"),
        ("IREE's tiles on the CPU, as a tuning spec:",
         "gemmetry tune --provider iree --device cpu --shapes 512x512x512 -o spec.mlir"),
        ("How strategies would have done on a stored exhaustive search:",
         "gemmetry tune --simulate gemmetry-out/tune-exhaustive"),
    ),
    "generate": (
        ("The 109 dispatches of IREE's dispatch profiler:",
         "gemmetry generate --generated-dir here"),
        ("One shape in all configurations for the CPU:",
         "gemmetry generate --device cpu --problem-m 768 --problem-n 512 \\\n"
         "  --problem-k 1024 --generated-dir here"),
        ("List the files and dispatches without writing them:",
         "gemmetry generate --device hip-gfx942 --dry-run"),
    ),
    "compile": (
        ("Compile what generate wrote:", "gemmetry compile --generated-dir here"),
        ("GPU code without a GPU, with registers and spills:",
         "gemmetry compile --providers triton --device cuda-sm_90 \\\n"
         "  --shapes 4096x4096x4096 --dtypes f16"),
        ("One configuration by its name:",
         "gemmetry compile --device cpu --dispatches \\\n"
         "  matmul_512x512x512_f32t_f32t_f32t_data_tiling"),
    ),
    "verify": (
        ("Verify dispatches without timing them:", "gemmetry verify run --shapes 257x129x65"),
        ("With every check:",
         "gemmetry verify run --shapes 512x512x512 --verification-level paranoid"),
        ("Test the checks on kernels with deliberate bugs:", "gemmetry verify self-test"),
    ),
    "verify run": (
        ("The shapes of a first run:", "gemmetry verify run"),
        ("Your own kernel, with every check:",
         "gemmetry verify run --kernel my_gemm.py:function --shapes 257x129x65 \\\n"
         "  --verification-level paranoid"),
        ("Every tile configuration of IREE in bf16:",
         "gemmetry verify run --providers iree --dtypes bf16 \\\n"
         "  --dispatches 'configuration=tile_config_*'"),
    ),
    "verify self-test": (
        ("Every mutant that runs here:", "gemmetry verify self-test"),
        ("Only the correct kernels that look wrong:", "gemmetry verify self-test --mutants 'ok*'"),
        ("Fewer checks, with the scores in a file:",
         "gemmetry verify self-test --level quick -o score.md"),
    ),
    "trace": (
        ("What the GPU did, step by step:", "gemmetry trace summary trace.json.gz --steps"),
        ("Stragglers of a job:", "gemmetry trace collectives job/"),
        ("A page with a timeline:", "gemmetry trace report job/ -o job.html"),
    ),
    "trace record": (
        ("The default grid:", "gemmetry trace record --experiment my-grid"),
        ("One size in two formats:",
         "gemmetry trace record --matrix-sizes 1024 --precisions fp32,bf16 \\\n"
         "  --experiment small"),
        ("More repeats in an existing experiment:",
         "gemmetry trace record --experiment my-grid --repeat-count 30"),
    ),
    "trace summary": (
        ("One trace:", "gemmetry trace summary trace.json.gz"),
        ("With each step that the profiler marked:",
         "gemmetry trace summary trace.json.gz --steps"),
        ("All traces of a folder as a table:", "gemmetry trace summary job/ -o summary.csv"),
    ),
    "trace gemms": (
        ("The ten that take the most time:", "gemmetry trace gemms trace.json.gz --top 10"),
        ("All GEMMs of a job, in a workbook:", "gemmetry trace gemms job/ -o gemms.xlsx"),
        ("As JSON, for a script:", "gemmetry trace gemms trace.json.gz --json"),
    ),
    "trace shapes": (
        ("A spec with the GEMMs of a trace:", "gemmetry trace shapes trace.json.gz -o shapes.yaml"),
        ("Measure them right away:",
         "gemmetry trace shapes trace.json.gz --spec | gemmetry profile --spec -"),
        ("The five that take the most time:", "gemmetry trace shapes trace.json.gz --top 5"),
    ),
    "trace collectives": (
        ("All ranks of a job:", "gemmetry trace collectives job/"),
        ("One row per kind of collective:",
         "gemmetry trace collectives job/ --rows kinds -o kinds.csv"),
        ("Two ranks:", "gemmetry trace collectives rank0.json.gz rank1.json.gz"),
    ),
    "trace report": (
        ("A page with a timeline:", "gemmetry trace report trace.json.gz -o trace.html"),
        ("TraceLens' sheets and gemmetry's:", "gemmetry trace report job/ -o job.xlsx"),
        ("Several files at once:", "gemmetry trace report job/ -o job.html,job.json"),
    ),
    "sweep": (
        ("A first sweep, on a CPU:",
         "gemmetry sweep run --threads 256,512 --channels 1,2 --config tiny --nproc 2"),
        ("What communication costs, and which point is best:",
         "gemmetry sweep analyze sweep_20251124_222204"),
        ("As JSON, for a script:", "gemmetry sweep analyze sweep_20251124_222204 --json"),
    ),
    "sweep run": (
        ("A first sweep, on a CPU:",
         "gemmetry sweep run --threads 256,512 --channels 1,2 --config tiny --nproc 2"),
        ("Eight points on the GPUs of this machine, each three times:",
         "gemmetry sweep run --channels 28,42,56,70 --threads 256,512 --repeats 3 \\\n"
         "  --config gemm_overlap_comm.yaml -o my-sweep"),
        ("Your own training, with NCCL's algorithm as an axis:",
         "gemmetry sweep run --channels 16,32 --axis NCCL_ALGO=Ring,Tree \\\n"
         "  --command 'torchrun --nproc-per-node 8 train.py'"),
    ),
    "sweep tuner-config": (
        ("The best setting of each collective, for NCCL's example tuner plugin:",
         "gemmetry sweep tuner-config sweep_20251124_222204 -o nccl_tuner.conf"),
        ("As JSON, with the evidence:",
         "gemmetry sweep tuner-config sweep_20251124_222204 --json"),
        ("From two of its channel counts:",
         "gemmetry sweep tuner-config sweep_20251124_222204 --channels 28,42"),
    ),
    "sweep analyze": (
        ("What communication costs, and which point is best:",
         "gemmetry sweep analyze sweep_20251124_222204"),
        ("Two of its channel counts, in a folder of their own:",
         "gemmetry sweep analyze sweep_20251124_222204 --channels 28,42 \\\n"
         "  --analysis-dir two"),
        ("As the old scripts name it:",
         "gemmetry sweep analyze \\\n"
         "  --base-path sweep_20251124_222204/tracelens_analysis \\\n"
         "  --threads 256 512 --channels 28 42 56 70 --ranks 0 1 --top-k 5"),
    ),
    "sweep rocprof-input": (
        ("Busy compute and matrix units of the kernels that vary most:",
         "gemmetry sweep rocprof-input --from top5_gemm_kernels_time_variance.csv \\\n"
         "  -o rocprof_top5.yaml"),
        ("More counters, checked for an MI300X:",
         "gemmetry sweep rocprof-input --from top5_gemm_kernels_time_variance.csv \\\n"
         "  --preset gemm --counters SQ_INSTS_SMEM --chip gfx942 -o rocprof_top5.yaml"),
        ("As the old script names its options:",
         "gemmetry sweep rocprof-input \\\n"
         "  --input-csv top5_gemm_kernels_time_variance.csv \\\n"
         "  --output-yaml rocprof_top5_kernels.yaml"),
    ),
    "sweep compare": (
        ("What changed from one sweep to another:",
         "gemmetry sweep compare before/ after/ -o sweep_comparison.html"),
        ("Three sweeps with names; the others are compared with the first:",
         "gemmetry sweep compare ddp/ fsdp/ bucket64/ \\\n"
         "  --label DDP --label FSDP --label 'bucket of 64 MiB'"),
        ("As the old script names them:",
         "gemmetry sweep compare --sweep1 before/ --sweep2 after/ \\\n"
         "  --label1 Base --label2 Test --output sweep_comparison.html"),
    ),
    "counters": (
        ("Counters of the GEMMs of a program:",
         "gemmetry counters collect --kernel gemm -o my-counters -- python train.py"),
        ("What bounds each kernel of a report:",
         "gemmetry counters diagnose my-counters/report.ncu-rep"),
        ("What counters show on an H200:", "gemmetry counters metrics --chip gh100"),
    ),
    "counters collect": (
        ("Counters of the GEMMs of a program:",
         "gemmetry counters collect --kernel gemm -o my-counters -- python train.py"),
        ("Two launches after ten of warm-up, with every section:",
         "gemmetry counters collect --set full --launch-skip 10 --launch-count 2 \\\n"
         "  -o my.ncu-rep -- python train.py"),
        ("What would be run:", "gemmetry counters collect --set quick --dry-run -- ./gemm 4096"),
    ),
    "counters compare": (
        ("What changed between two versions of a kernel",
         "gemmetry counters compare old.csv new.csv --label old --label new"),
        ("The launches of one kernel with different tiles, in one report",
         "gemmetry counters compare my.ncu-rep --kernel matmul_kernel"),
        ("With further metrics, as a table",
         "gemmetry counters compare a.csv b.csv --metrics sm_count -o changes.csv"),
    ),
    "counters diagnose": (
        ("What bounds each kernel of a report, in a few lines each:",
         "gemmetry counters diagnose my.ncu-rep --brief"),
        ("Whether a GEMM did the work of its shape:",
         "gemmetry counters diagnose my.csv --kernel nvjet \\\n"
         "  --shape 4096x4096x4096 --dtype bf16"),
        ("Next to the checklist of the document and NVIDIA's rules:",
         "gemmetry counters diagnose my.ncu-rep --beside -o diagnosis.json"),
    ),
    "counters import": (
        ("The launches of a report of Nsight Compute:", "gemmetry counters import my.ncu-rep"),
        ("Some of its metrics:",
         "gemmetry counters import my.ncu-rep --metric 'dram__bytes*'"),
        ("Several reports as one table:",
         "gemmetry counters import a.csv b.ncu-rep -o counters.parquet"),
    ),
    "counters metrics": (
        ("What counters show on an H200:", "gemmetry counters metrics --chip gh100"),
        ("Reasons for stalls on a Blackwell GPU:",
         "gemmetry counters metrics --chip 10.0 --concept 'stall_*'"),
        ("Of an MI300X, as a table:", "gemmetry counters metrics --chip gfx942 -o metrics.csv"),
    ),
    "kernels": (
        ("What each rung of the ladder adds:", "gemmetry kernels list"),
        ("Compile all of them and check the machine code:", "gemmetry kernels check"),
        ("Measure every rung and its gain:", "gemmetry kernels ladder"),
    ),
    "kernels list": (
        ("Every kernel with its configurations:", "gemmetry kernels list"),
        ("For a script:", "gemmetry kernels list --json"),
        ("As a table in Markdown:", "gemmetry kernels list -o kernels.md"),
    ),
    "kernels check": (
        ("Every kernel in every configuration:", "gemmetry kernels check"),
        ("One rung, or one configuration of a kernel:",
         "gemmetry kernels check r07 r11_128x256_c2x1_b8"),
        ("Registers and shared memory as a table:",
         "gemmetry kernels check 'r01*' -o registers.csv"),
    ),
    "kernels ladder": (
        ("Every rung next to cuBLAS, on this machine's Hopper GPU:", "gemmetry kernels ladder"),
        ("The upper rungs on two sizes, as a picture:",
         "gemmetry kernels ladder --rungs 5-11 --sizes 4096,8192 -o ladder.png"),
        ("What an earlier run measured, as a table:",
         "gemmetry kernels ladder gemmetry-out/ladder -o ladder.md"),
    ),
    "list": (
        ("Which providers work here, and why others do not:", "gemmetry list providers"),
        ("Configurations of a shape:",
         "gemmetry list configurations --shapes 512x512x512 --providers iree"),
        ("Every column of the tables:", "gemmetry list columns"),
    ),
    "list providers": (
        ("On the terminal:", "gemmetry list providers"),
        ("As JSON, for a script:", "gemmetry list providers --json"),
        ("In a file:", "gemmetry list providers -o providers.md"),
    ),
    "list support": (
        ("On the terminal:", "gemmetry list support"),
        ("As JSON, for a script:", "gemmetry list support --json"),
        ("In two files:", "gemmetry list support -o support.csv,support.html"),
    ),
    "list dtypes": (
        ("On the terminal:", "gemmetry list dtypes"),
        ("As JSON, for a script:", "gemmetry list dtypes --json"),
        ("In a file:", "gemmetry list dtypes -o dtypes.csv"),
    ),
    "list columns": (
        ("On the terminal:", "gemmetry list columns"),
        ("As JSON, for a script:", "gemmetry list columns --json"),
        ("In a file:", "gemmetry list columns -o columns.md"),
    ),
    "list operations": (
        ("Operations of a sweep, with FLOPs and bytes:",
         "gemmetry list operations --problem-m 64:1024:128 --problem-n 512 \\\n"
         "  --problem-k 4096"),
        ("Operations of a preset:", "gemmetry list operations --shapes llm --dtypes bf16"),
        ("Operations of a spec:", "gemmetry list operations --spec study.yaml"),
    ),
    "list configurations": (
        ("Configurations of every provider:", "gemmetry list configurations --shapes 512x512x512"),
        ("For a GPU that this machine does not have:",
         "gemmetry list configurations --providers iree --device hip-gfx942"),
        ("Only some:",
         "gemmetry list configurations --dispatches '*_vector8x32x*' --limit 20"),
    ),
    "report": (
        ("Print the table of an experiment again:", "gemmetry report gemmetry-out/profile-1234"),
        ("Compare with another baseline:",
         "gemmetry report gemmetry-out/profile-1234 --baseline numpy"),
        ("The columns of the dispatch profiler's CSV:",
         "gemmetry report gemmetry-out/profile-1234 -o data.csv \\\n"
         "  --columns dispatch-profiler"),
    ),
    "show": (
        ("Everything about one dispatch:",
         "gemmetry show gemmetry-out/profile-1234 \\\n"
         "  iree:matmul_512x512x512_f32t_f32t_f32t_default"),
        ("By a part of its name:", "gemmetry show gemmetry-out/profile-1234 data_tiling"),
        ("As JSON, for a script:", "gemmetry show gemmetry-out/profile-1234 'torch:*' --json"),
    ),
    "merge": (
        ("Merge two runs into one folder:", "gemmetry merge monday tuesday --into both"),
        ("Merge all experiments of a folder:", "gemmetry merge gemmetry-out/profile-* --into all"),
        ("Merge, then print the table:",
         "gemmetry merge monday tuesday --into both && gemmetry report both"),
    ),
    "import": (
        ("Results of cutlass_profiler next to an experiment's:",
         "gemmetry import cutlass.gemm.csv --like mine --into theirs &&\n"
         "  gemmetry merge mine theirs --into both && gemmetry report both"),
        ("A table of tritonbench, which states no formats:",
         "gemmetry import gemm.csv --operation f16t_f16t_f16t --into tritonbench"),
        ("A cache of Kernel Tuner, which states no problem:",
         "gemmetry import cache.json --into tuned \\\n"
         "  --operation matmul_4096x4096x4096_f32t_f32t_f32t"),
    ),
    "compare": (
        ("Before and after, exit status 1 on a regression:", "gemmetry compare before after"),
        ("Differences below 5 % do not count:",
         "gemmetry compare before after --threshold 5%"),
        ("The dispatches of one run compared with torch:", "gemmetry compare run --baseline torch"),
    ),
    "history": (
        ("Add last night's run:",
         "gemmetry history add gemmetry-out/profile-1234 --store history"),
        ("What changed, with exit status 1 for a slower kernel:",
         "gemmetry history check --store history"),
        ("A static site of all of it:", "gemmetry history site --store history -o site"),
    ),
    "history add": (
        ("Add an experiment:", "gemmetry history add gemmetry-out/profile-1234 --store history"),
        ("With the commit that it measured:",
         "gemmetry history add tonight --store history --commit 1a2b3c4 \\\n"
         "  --label nightly"),
        ("Several older ones:", "gemmetry history add gemmetry-out/profile-* --store history"),
    ),
    "history show": (
        ("Every dispatch, with a trend:", "gemmetry history show --store history"),
        ("One dispatch, with its changes and their causes:",
         "gemmetry history show triton:matmul_4096x4096x4096 --store history"),
        ("All points as JSON:", "gemmetry history show 'torch:*' --store history --json"),
    ),
    "history check": (
        ("In continuous integration:",
         "gemmetry history check --store history -o check.xml,check.md"),
        ("A month of nights, and changes of unclear cause fail, too:",
         "gemmetry history check --store history --latest 30 \\\n"
         "  --fail-on kernel,lost,undecided"),
        ("Compared with another reference:",
         "gemmetry history check --store history --baseline iree:default"),
    ),
    "history annotate": (
        ("Acknowledge a slower kernel:",
         "gemmetry history annotate triton:matmul_4096 --store history --run 1a2b3c4 \\\n"
         "  --text 'more accurate sums, see #123'"),
        ("A remark on all dispatches:",
         "gemmetry history annotate '*' --store history --run 2026-11-23 \\\n"
         "  --text 'new driver'"),
        ("A remark that keeps the alarm:",
         "gemmetry history annotate '*' --store history --run 1a2b3c4 --keep-alarm \\\n"
         "  --text 'being examined'"),
    ),
    "history site": (
        ("A folder that any web server can offer:",
         "gemmetry history site --store history -o site"),
        ("With another title:",
         "gemmetry history site --store history -o site --title 'GEMMs on our H200s'"),
        ("Compared with another reference:",
         "gemmetry history site --store history -o site --baseline iree:default"),
    ),
    "cache": (
        ("The caches that your runs wrote:", "gemmetry cache clear"),
        ("In addition, that of one trace:", "gemmetry cache clear trace.json.gz"),
        ("In addition, those of all traces in a folder:", "gemmetry cache clear job/"),
    ),
    "cache clear": (
        ("The caches that your runs wrote:", "gemmetry cache clear"),
        ("In addition, that of one trace:", "gemmetry cache clear trace.json.gz"),
        ("In addition, those of all traces in a folder:", "gemmetry cache clear job/"),
    ),
    "dispatcher": (
        ("A table from the experiments of a campaign:",
         "gemmetry dispatcher build tuning -o table.json"),
        ("What a table chooses for each shape:", "gemmetry dispatcher show table.json"),
        ("How a table does on shapes that it has never seen:",
         "gemmetry dispatcher evaluate held-out --table table.json"),
    ),
    "dispatcher build": (
        ("A table from one experiment:", "gemmetry dispatcher build tuning -o table.json"),
        ("Times of one experiment, verifications of another:",
         "gemmetry dispatcher build tuning proofs -o table.json"),
        ("Its content as JSON:", "gemmetry dispatcher build tuning -o table.json --json"),
    ),
    "dispatcher evaluate": (
        ("How a table does on unseen shapes:",
         "gemmetry dispatcher evaluate held-out --table table.json"),
        ("How the table that comes with gemmetry does:", "gemmetry dispatcher evaluate held-out"),
        ("Each shape's choice as a table:",
         "gemmetry dispatcher evaluate held-out -o choices.csv"),
    ),
    "dispatcher show": (
        ("The choices of a table:", "gemmetry dispatcher show table.json"),
        ("As JSON:", "gemmetry dispatcher show table.json --json"),
        ("As a table:", "gemmetry dispatcher show table.json -o choices.csv"),
    ),
    "doctor": (
        ("On the terminal:", "gemmetry doctor"),
        ("As JSON, for a script:", "gemmetry doctor --json"),
        ("To attach to a bug report:", "gemmetry doctor -o machine.md"),
    ),
    "schema": (
        ("For the editor in which you write a spec:", "gemmetry schema spec -o spec.schema.json"),
        ("On the terminal:", "gemmetry schema"),
        ("The schema of what --json prints:", "gemmetry schema results"),
    ),
    "help": (
        ("What there are pages about:", "gemmetry help"),
        ("How the keys of a spec are written:", "gemmetry help specs"),
        ("A page for a program:", "gemmetry help measurement --json"),
    ),
}  # fmt: skip
"""Command, without ``gemmetry``, -> its examples; "" for ``gemmetry`` itself."""


def examples_of(command_path: str) -> tuple[Example, ...]:
    """The examples of the command ``gemmetry ...``; none for one that is not ours."""
    program, _, command = command_path.partition(" ")
    return EXAMPLES.get(command, ()) if program == "gemmetry" else ()
