#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the speed of models with frameworks: compare_times.py TIME_MODELS MODELS_DIR JSON [TASK ...]

Tasks: prefill (SmolLM2, 2048 tokens, compared with PyTorch), decode (tokens a second compared with the
bound of reading 16-bit weights once), load (135 million weights from safetensors), embed (MiniLM, 256
tokens, compared with ONNX Runtime; needs the packages onnx, onnxscript and onnxruntime), llama (SmolLM2
on one and two threads, compared with llama.cpp, if fetch_models.sh --llama has built it); all of them
by default. Medians of alternating rounds, on one thread of the last CPU unless said otherwise. A
task's figures replace those in JSON.
"""
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all files are there
os.environ["OMP_NUM_THREADS"] = "1"
ROUNDS = 3
BYTES_OF_WEIGHT = 2


def on_cpus(count):
    """The command that runs another one on the last CPUs of this machine."""
    last = os.cpu_count()
    return ["taskset", "-c", f"{last - count}-{last - 1}"]


class Worker:
    """A running time_models, which measures one task at a time."""

    def __init__(self, program, models, threads=1):
        self.program = program
        self.process = subprocess.Popen(
            [*on_cpus(threads), program, models / "smollm2.gguf", models / "minilm", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def some_tokens(count, vocabulary):
    return [(i * 7919 + 104729) % vocabulary for i in range(count)]


def seconds_of(run):
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def in_turns(fovea, peer, rounds):
    """Medians of both, and of their ratios."""
    fovea(), peer()
    pairs = [(fovea(), peer()) for _ in range(rounds)]
    return {"fovea_ms": 1e3 * statistics.median(a for a, _ in pairs),
            "peer_ms": 1e3 * statistics.median(b for _, b in pairs),
            "times_faster": statistics.median(b / a for a, b in pairs)}


def prefill(worker, models):
    import torch
    import transformers
    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        models, gguf_file="smollm2.gguf", dtype=torch.float32).eval()
    ids = torch.tensor([some_tokens(2048, model.config.vocab_size)])

    def peer():
        with torch.inference_mode():
            return seconds_of(lambda: model(ids, logits_to_keep=1))
    row = in_turns(lambda: worker("prefill f32 2048"), peer, ROUNDS)
    return [{"task": "SmolLM2-135M, prefill of 2048 tokens, f32",
             "peer": f"PyTorch {torch.__version__.split('+')[0]}", **row}]


def decode(worker, models):
    import gguf
    file = gguf.GGUFReader(models / "smollm2.gguf")
    weights = sum(int(t.n_elements) for t in file.tensors if len(t.shape) > 1)
    rows = []
    count = 64
    for kind in ("f16", "bf16"):
        worker(f"decode {kind} {count}")
        pairs = []
        for _ in range(ROUNDS):
            before = worker("bandwidth")
            seconds = worker(f"decode {kind} {count}")
            bandwidth = (before + worker("bandwidth")) / 2
            pairs.append((count / seconds, bandwidth / (BYTES_OF_WEIGHT * weights)))
        rows.append({"weights": kind, "tokens_per_second": statistics.median(a for a, _ in pairs),
                     "bound_tokens_per_second": statistics.median(b for _, b in pairs),
                     "fraction_of_bound": statistics.median(a / b for a, b in pairs)})
    return rows


def load(worker, _models):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for file, model in (("f32", "f32"), ("bf16", "bf16")):
            path = os.path.join(folder, file)
            worker(f"write {path} {file}")
            worker(f"load {path} {model}")
            seconds = statistics.median(worker(f"load {path} {model}") for _ in range(ROUNDS))
            rows.append({"file": file.upper(), "model": model, "seconds": seconds})
    return rows


def export(models, path, tokens):
    """MiniLM up to the sentence's vector as an ONNX file, its attention and norms fused."""
    import torch
    import transformers
    from onnxruntime.transformers import optimizer
    bert = transformers.AutoModel.from_pretrained(models / "minilm", attn_implementation="eager",
                                                  dtype=torch.float32).eval()

    class Sentence(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, ids, mask):
            hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
            return torch.nn.functional.normalize(hidden.mean(1), dim=1)
    ids = torch.tensor([tokens])
    torch.onnx.export(Sentence(), (ids, torch.ones_like(ids)), path, input_names=["ids", "mask"],
                      output_names=["vector"], dynamo=False, opset_version=17)
    fused = optimizer.optimize_model(path, model_type="bert", num_heads=12, hidden_size=384,
                                     opt_level=1, use_gpu=False)
    fused.save_model_to_file(path + ".fused")
    print("fused:", fused.get_fused_operator_statistics(), file=sys.stderr)


def embed(worker, models):
    import numpy
    import onnxruntime
    tokens = some_tokens(256, 30522)
    ids = numpy.array([tokens], dtype=numpy.int64)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "minilm.onnx")
        export(models, path, tokens)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        best = None
        for name in (path, path + ".fused"):  # the faster one is the peer
            session = onnxruntime.InferenceSession(name, options, providers=["CPUExecutionProvider"])
            given = {"ids": ids, "mask": numpy.ones_like(ids)}
            given = {i.name: given[i.name] for i in session.get_inputs()}
            session.run(None, given)

            def peer():
                return seconds_of(lambda: session.run(None, given))
            row = in_turns(lambda: worker("embed 256"), peer, 7 * ROUNDS)
            if best is None or row["peer_ms"] < best["peer_ms"]:
                best = row
    return [{"task": "all-MiniLM-L6-v2, 256 tokens, f32",
             "peer": f"ONNX Runtime {onnxruntime.__version__}", **best}]


def llama_bench(models, weights, threads, *arguments):
    """Tokens per second of llama.cpp."""
    out = subprocess.run(
        [*on_cpus(threads), models / "llama" / "llama-bench", "-m",
         models / "llama" / f"{weights}.gguf", "-t", str(threads), "-r", "1", "-o", "json", *arguments],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}).stdout
    return json.loads(out)[0]["avg_ts"]


def llama(worker, models):
    tasks = {"prefill": (2048, ["-p", "2048", "-n", "0"]), "decode": (64, ["-p", "0", "-n", "64"])}
    rows = []
    for threads in (1, 2):
        worker = Worker(worker.program, models, threads)
        for task, (count, arguments) in tasks.items():
            def peer(weights):
                return llama_bench(models, weights, threads, *arguments)
            for weights in ("f32", "f16"):
                worker(f"{task} {weights} {count}")
                pairs = [(count / worker(f"{task} {weights} {count}"), peer(weights.upper()))
                         for _ in range(ROUNDS)]
                rows.append({"name": f"{task} {weights} {threads}", "task": task, "count": count,
                             "weights": weights, "threads": threads,
                             "fovea": statistics.median(a for a, _ in pairs),
                             "llama": statistics.median(b for _, b in pairs),
                             "times_faster": statistics.median(a / b for a, b in pairs)})
            for weights in ("Q8_0", "Q4_0"):  # fovea has no such weights
                rows.append({"name": f"{task} {weights} {threads}", "task": task, "count": count,
                             "weights": weights, "threads": threads,
                             "llama": statistics.median(peer(weights) for _ in range(ROUNDS))})
    return rows


def main():
    os.sched_setaffinity(0, {os.cpu_count() - 1})
    program, models, path = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    tasks = {"prefill": prefill, "decode": decode, "load": load, "embed": embed, "llama": llama}
    result = json.loads(path.read_text()) if path.exists() else {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next(line.split(": ")[1].strip() for line in file if line.startswith("model name"))
    result["machine"] = {"cpu": cpu, "kernel": platform.release(), "date": time.strftime("%F")}
    if not sys.argv[4:] and not (models / "llama").exists():
        print("llama.cpp is not there (fetch_models.sh --llama): left out", file=sys.stderr)
        del tasks["llama"]
    for name in sys.argv[4:] or tasks:
        rows = tasks[name](Worker(program, models), models)
        if name in ("prefill", "embed"):
            names = [row["task"] for row in rows]
            kept = [row for row in result.get("frameworks", []) if row["task"] not in names]
            rows, name = kept + rows, "frameworks"
        result[name] = rows
        path.write_text(json.dumps(result, indent=1) + "\n")
        print(json.dumps(result[name], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
