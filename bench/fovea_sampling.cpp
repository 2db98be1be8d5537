// SPDX-License-Identifier: MIT
/// \file
/// Which keys a sketch finds: the policies of Smart Bird (Wu et al. 2021, Figure 4) over K, on a
/// real document. See --help.
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/entries/sparse_entry.hpp"
#include "bench/io/compare_arguments.hpp"
#include "bench/io/compare_input.hpp"
#include "bench/io/compare_json.hpp"
#include "bench/io/compare_sources.hpp"
#include "bench/io/document_sketch.hpp"
#include "bench/io/gnuplot.hpp"
#include "bench/io/program.hpp"
#include "bench/measure/compare_measure.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/io/output_file.hpp"

namespace {

using namespace bench;
using fovea::SamplingPolicy;
using fovea::SmartBirdAttention;

constexpr std::string_view kHelp =
    R"(fovea_sampling: the keys that Smart Bird attention finds by its sketch, for each policy and K: how
much of the weight of full attention they carry, and how far the output is from it. Not causal,
float32. The same numbers in every run.

usage: fovea_sampling [options]
  --text FILE   the bytes of FILE; a short text is repeated   (the sources of this project)
  --length N    tokens, one for each byte                     (4096)
  --plots DIR   directory of sampling.svg, made if missing    (out)
  --json FILE   where the JSON goes                           (sampling.json in that directory)
  --help        this text

The sketch is the best approximation in 4 dimensions of the mean of the heads' logits. `own best`
are the keys of the largest weights of each row and head: no choice of as many keys carries more.
)";

constexpr std::array<Index, 5> kKeys = {5, 10, 20, 40, 80};

/// A row of the table; no policy: the best keys of each row and head.
struct Choice {
  const char* name;
  bool by_sketch;
  SamplingPolicy policy;
};

constexpr std::array<Choice, 6> kChoices = {{
    {"squared inverse log", true, SamplingPolicy::squared_inverse_log},
    {"inverse log", true, SamplingPolicy::inverse_log},
    {"raw", true, SamplingPolicy::raw},
    {"top K", true, SamplingPolicy::top_k},
    {"random", true, SamplingPolicy::random},
    {"own best", false, SamplingPolicy::top_k},
}};

/// What some keys per row make of attention.
struct Found {
  double mass;      ///< of the weights of full attention, mean over rows and heads
  double distance;  ///< |out - full| / |full|
};

/// [choice][K].
using Table = std::array<std::array<Found, kKeys.size()>, kChoices.size()>;

/// An output with the logarithm of each row's sum.
struct Result {
  explicit Result(const AllInputs<float>& in)
      : out(static_cast<std::size_t>(in.q.heads() * in.q.rows() * in.v.width())),
        lse(static_cast<std::size_t>(in.q.heads() * in.q.rows())),
        out_view(out.data(), {1, in.q.heads(), in.q.rows(), in.v.width()}),
        lse_view(lse.data(), {1, in.q.heads(), in.q.rows(), 1}) {}
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;

  std::vector<float> out, lse;
  View<float> out_view, lse_view;
};

/// Attention to the keys of the largest weights: a sketch of each head's own queries and keys.
void attend_to_best(const AllInputs<float>& in, Index keys, const Result& to, ThreadPool& pool) {
  SmartBirdAttention op({.keys_per_row = keys, .policy = SamplingPolicy::top_k});
  for (Index h = 0; h < in.q.heads(); ++h) {
    const Index key_head = h / (in.q.heads() / in.k.heads());
    AllInputs<float> one{head_of(in.q, h), head_of(in.k, key_head), head_of(in.v, key_head)};
    one.sketch_q = one.q;
    one.sketch_k = one.k;
    op.forward(one, head_of(to.out_view, h), {head_of(to.lse_view, h)}, pool);
  }
}

Found find(const AllInputs<float>& in, const Choice& choice, Index keys, const Result& full,
           ThreadPool& pool) {
  const Result chosen(in);
  if (choice.by_sketch) {
    const SmartBirdAttention op({.keys_per_row = keys, .policy = choice.policy});
    op.forward(in, chosen.out_view, {chosen.lse_view}, pool);
  } else {
    attend_to_best(in, keys, chosen, pool);
  }
  double mass = 0;
  for (std::size_t n = 0; n < full.lse.size(); ++n) {
    mass += std::exp(static_cast<double>(chosen.lse[n]) - static_cast<double>(full.lse[n]));
  }
  return {mass / static_cast<double>(full.lse.size()), relative_distance(chosen.out, full.out)};
}

Table find_all(const HeadTensors& tensors, ThreadPool& pool) {
  const AllInputs<float> plain = tensors.first(tensors.q_shape[2]);
  const Result full(plain);
  fovea::FullAttention{}.forward(plain, full.out_view, {full.lse_view}, pool);
  const AllInputs<float> in = tensors.sketch.beside(plain);
  Table table{};
  for (std::size_t c = 0; c < kChoices.size(); ++c) {
    for (std::size_t k = 0; k < kKeys.size(); ++k) {
      table[c][k] = find(in, kChoices[c], kKeys[k], full, pool);
    }
  }
  return table;
}

void print(const Table& table, const char* what, double Found::*number) {
  std::printf("\n%s\n%-20s", what, "K");
  for (const Index k : kKeys) std::printf(" %7td", k);
  for (std::size_t c = 0; c < kChoices.size(); ++c) {
    std::printf("\n%-20s", kChoices[c].name);
    for (const Found& found : table[c]) std::printf(" %7.3f", found.*number);
  }
  std::printf("\n");
}

std::string table_json(const Comparison& run, const Table& table) {
  JsonWriter json;
  json.begin_object();
  write_facts(json, "fovea_sampling", run.command);
  json.member("input", run.input);
  json.member("what", "keys that Smart Bird attention finds by its sketch; not causal, float32");
  json.member("heads", run.shape.query_heads);
  json.member("width", run.shape.width);
  json.member("sketch_width", kSketchWidth);
  json.member("n", run.shape.keys);
  json.member("mass", "weight of full attention on the chosen keys, mean over rows and heads");
  json.member("relative_difference_from_full", "|out - full| / |full|");
  json.begin_array("results");
  for (std::size_t c = 0; c < kChoices.size(); ++c) {
    for (std::size_t k = 0; k < kKeys.size(); ++k) {
      json.begin_object();
      json.member("policy", kChoices[c].name);
      json.member("keys_per_row", kKeys[k]);
      json.member("mass", table[c][k].mass);
      json.member("relative_difference_from_full", table[c][k].distance);
      json.end();
    }
  }
  json.end();
  json.end();
  return json.text() + '\n';
}

/// Mass over K, a line for each choice. The script writes <directory>/sampling.svg.
std::string plot_script(const Comparison& run, const Table& table, const std::string& directory) {
  const auto quoted = [](const std::string& text) { return bench::detail::gnuplot_quoted(text); };
  const std::array colours = {"#0072B2", "#009E73", "#D55E00", "#E69F00", "#7F7F7F", "#000000"};
  std::string text = "set logscale x 2\nset logscale y 10\nset xrange [4.6:87]\nset xtics (";
  for (const Index k : kKeys) {
    text += (k == kKeys.front() ? "" : ", ") + std::to_string(k);
  }
  text +=
      ")\nset xlabel 'keys of each row, K'\nset ylabel 'share of the weight of full attention'\n"
      "set grid xtics ytics lt 1 lw 0.6 lc rgb '#DDDDDD'\nset border 3 lc rgb '#404040'\n"
      "set tics nomirror out\n";
  std::string command;
  std::vector<std::string> key;
  for (std::size_t c = 0; c < kChoices.size(); ++c) {
    const std::string block = "$choice" + std::to_string(c);
    text += block + " << EOD\n";
    for (std::size_t k = 0; k < kKeys.size(); ++k) {
      text += std::to_string(kKeys[k]) + " " + json_number(table[c][k].mass) + "\n";
    }
    text += "EOD\n";
    command += (c == 0 ? "plot " : ", \\\n  ") + block + " with linespoints lw 2 pt 7 lc rgb '" +
               colours[c] + "' dt " + (kChoices[c].by_sketch ? "1" : "2") + " title " +
               quoted(kChoices[c].name);
    key.emplace_back(kChoices[c].name);
  }
  const PictureFormat& svg = kPictureFormats[0];
  const PictureLayout layout(key);
  return text + layout.commands(svg) +
         layout.titles(svg, "Weight of full attention on the keys that a sketch finds",
                       "N = " + std::to_string(run.shape.keys) + ", " + heads_and_width(run.shape) +
                           ", a sketch of " + std::to_string(kSketchWidth) + " dimensions") +
         "set output " + quoted(directory + "/sampling" + svg.extension) + "\n" + command + "\n";
}

/// \throws ArgumentError
CompareArguments parse(int argc, char** argv) {
  CompareArguments parsed;
  parsed.lengths = {4096};
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    if (flag == "--help") {
      parsed.help = true;
    } else if (flag == "--length" && i + 1 < argc) {
      parsed.lengths = {bench::detail::argument_number(flag, argv[++i], 1, Index{1} << 24)};
    } else if ((flag == "--text" || flag == "--plots" || flag == "--json") && i + 1 < argc) {
      bench::detail::set_argument(parsed, flag, argv[++i]);
    } else {
      throw ArgumentError("'" + std::string(flag) + "' is not understood; see --help");
    }
  }
  return parsed;
}

int run_program(int argc, char** argv) {
  Comparison run;
  run.arguments = parse(argc, argv);
  if (run.arguments.help) {
    std::fputs(std::string(kHelp).c_str(), stdout);
    return 0;
  }
  run.command.assign(argv, argv + argc);
  const std::string& directory = run.arguments.directory;
  make_directory(directory);
  const std::string json_file =
      run.arguments.json_file.empty() ? directory + "/sampling.json" : run.arguments.json_file;
  for (const std::string& file :
       {json_file, directory + "/sampling.gp", directory + "/sampling.svg"}) {
    fovea::check_output(file);
  }
  const Index n = run.arguments.lengths[0];
  const Document document = document_of(run.arguments, FOVEA_SOURCE_DIR);
  run.input = document.what;
  HeadTensors tensors = embed_text(document.bytes, n, run.arguments.heads, run.arguments.width);
  run.shape = fovea::shape_of(tensors.first(n));
  tensors.sketch = document_sketch(tensors.first(n), kSketchWidth);
  ThreadPool pool;
  const Table table = find_all(tensors, pool);
  std::printf("input: %s\n%td heads, D = %td, N = %td, a sketch of %td dimensions\n",
              run.input.c_str(), run.shape.query_heads, run.shape.width, n, kSketchWidth);
  print(table, "share of the weight of full attention, mean over rows and heads", &Found::mass);
  print(table, "|out - full| / |full|", &Found::distance);
  fovea::write_file(json_file, table_json(run, table));
  draw(directory + "/sampling.gp", plot_script(run, table, directory));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return exit_status("fovea_sampling", [&] { return run_program(argc, argv); });
}
