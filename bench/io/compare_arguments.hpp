// SPDX-License-Identifier: MIT
/// \file
/// The command line of fovea_compare, and what others have in common with it.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "examples/command_line.hpp"
#include "fovea/core/config.hpp"

namespace bench {

using fovea::Index;
using program::ArgumentError;
using program::CommandLine;

/// The types of tensors. Those of 16 bits are computed in float.
enum class TensorType { f32, f64, f16, bf16 };

/// What a type is called: on command lines, and elsewhere.
struct TensorTypeNames {
  TensorType type;
  std::string_view flag;
  const char* name;
};

inline constexpr std::array<TensorTypeNames, 4> kTensorTypes = {
    {{TensorType::f32, "f32", "float32"},
     {TensorType::f64, "f64", "float64"},
     {TensorType::f16, "f16", "float16"},
     {TensorType::bf16, "bf16", "bfloat16"}}};

constexpr bool has_16_bits(TensorType type) {
  return type == TensorType::f16 || type == TensorType::bf16;
}

/// The arguments.
struct CompareArguments {
  std::string text_file;               ///< kOwnSources: the project's own
  std::string qkv_directory;           ///< empty: the tensors that the project keeps, or a text
  std::vector<Index> lengths;          ///< N, ascending, each once
  std::vector<std::string> operators;  ///< names of operators, or labels; none: all
  bool causal = false;                 ///< only those that see no later key
  bool advise = false;                 ///< which operator for these sizes
  TensorType type = TensorType::f32;
  double limit = 2;  ///< seconds of a pass; longer ones are left out
  Index heads = 8;
  Index width = 64;
  int threads = 1;
  int repeat = 3;
  std::string json_file;     ///< empty: compare.json in the output directory
  std::string against_file;  ///< the JSON of another run; empty: none
  std::string drawn_file;    ///< the JSON of a run to draw again; empty: none
  std::string directory = "out";
  bool lengths_given = false;
  bool heads_given = false;
  bool width_given = false;
  bool help = false;
};

/// Of the tensors.
constexpr const char* type_name(const CompareArguments& arguments) {
  return kTensorTypes[static_cast<std::size_t>(arguments.type)].name;
}

/// The tensors that are compared on unless others are given, below the project's folder.
inline constexpr const char* kKeptTensors = "bench/data";

/// The text that is the project's sources.
inline constexpr const char* kOwnSources = "sources";

/// Each length once, ascending.
inline void sort_lengths(CompareArguments& to) {
  std::sort(to.lengths.begin(), to.lengths.end());
  to.lengths.erase(std::unique(to.lengths.begin(), to.lengths.end()), to.lengths.end());
}

inline void add_lengths(CommandLine& line, CompareArguments& to,
                        const std::string& help = "sequence lengths, with commas") {
  std::string shown;
  for (const Index n : to.lengths) {
    if (!shown.empty()) shown += ',';
    shown += std::to_string(n);
  }
  line.add_value("--lengths LIST", shown, help,
                 [&to](const std::string& option, const std::string& text) {
                   to.lengths.clear();
                   for (const std::string& part : program::parts_of(option, text)) {
                     to.lengths.push_back(program::number_of<Index>(option, part, 1, 1 << 24));
                   }
                   sort_lengths(to);
                 });
}
inline void add_threads(CommandLine& line, CompareArguments& to) {
  line.add("--threads T", to.threads, 1, 1024, "threads");
}
inline void add_repeat(CommandLine& line, CompareArguments& to, const std::string& help) {
  line.add("--repeat R", to.repeat, 1, 100000, help);
}
inline void add_qkv(CommandLine& line, CompareArguments& to) {
  line.add("--qkv DIR", to.qkv_directory,
           "q.npy, k.npy and v.npy in DIR: of 16, 32 or 64 bits, [B,H,N,D], [H,N,D] or [N,D]; "
           "`language_model --dump-qkv DIR` writes those of a model (heads of three layers of "
           "SmolLM2-135M over a text of 2048 tokens, from bench/data)");
}
/// \param files that are written there
inline void add_plots(CommandLine& line, CompareArguments& to, const std::string& files) {
  line.add("--plots DIR", to.directory, "directory of " + files + ", made if missing");
}
inline void add_draw(CommandLine& line, CompareArguments& to) {
  line.add("--draw FILE", to.drawn_file,
           "draw the plots of the JSON of an earlier run, without measuring");
}

namespace detail {

inline void add_type(CommandLine& line, CompareArguments& to) {
  line.add_value("--dtype TYPE", "f32",
                 "type of the tensors: f32, f64, f16 or bf16, if the build has it; "
                 "cmake/compare.sh builds the requested one",
                 [&to](const std::string& option, const std::string& text) {
                   const auto* const found =
                       std::ranges::find(kTensorTypes, text, &TensorTypeNames::flag);
                   if (found == kTensorTypes.end()) {
                     throw ArgumentError(option + ": '" + text +
                                         "' is not known; the types are f32, f64, f16, bf16");
                   }
                   to.type = found->type;
                 });
}

inline void add_compare_options(CommandLine& line, CompareArguments& to) {
  line.section("input");
  add_qkv(line, to);
  line.add("--text FILE", to.text_file,
           "instead, the bytes of FILE, embedded by random tables; a short text is repeated; "
           "`sources` is the source code of this project");
  line.section("which operator");
  line.add("--advise", to.advise,
           "rank the operators by time for --lengths N (2048), --heads H, --width D (those of the "
           "input) and --causal, with their distance from full attention and memory. Input with "
           "fewer rows or heads is repeated; for another width the project's sources are embedded, "
           "as by --text. The output states which.");
  line.section("what is computed");
  line.add_list(
      "--operators LIST", to.operators,
      "only these, separated by commas: strided,fmm,...; full attention is always included "
      "(all)");
  line.add("--causal", to.causal, "only causal operators");
  add_lengths(line, to,
              "sequence lengths, separated by commas; by default those for which the tensors have "
              "rows, or 1024,4096,16384 of a text");
  line.add("--limit SECONDS", to.limit, 1e-12, 1e6, "omit passes that would take longer");
  add_type(line, to);
  line.add("--heads H", to.heads, 1, 1024, "heads of an embedded text, or for --advise");
  line.add("--width D", to.width, 1, 4096, "width of these heads");
  add_threads(line, to);
  add_repeat(line, to,
             "minimum number of timed runs of each cell, of which the median is shown (a third "
             "fewer if one takes over 1.5 s)");
  line.section("output");
  add_plots(line, to, "plots, report.html and JSON");
  line.add("--json FILE", to.json_file, "the JSON file (compare.json in that directory)");
  add_draw(line, to);
  line.add("--against FILE", to.against_file,
           "compare with the JSON of another run, for example of another machine");
  line.footer(
      "The sketch of Smart Bird is computed: the best approximation of the mean of the heads' "
      "logits with 4 dimensions.\n"
      "Speed-up and distance are relative to full attention, for causal operators to causal full "
      "attention.\n"
      "The JSON is written after each cell, so an interrupted run keeps its results.\n"
      "The operators run at the instruction-set level of the machine; FOVEA_ISA=baseline|v3|v4 "
      "caps it.");
}

}  // namespace detail

/// \throws ArgumentError
inline CompareArguments compare_arguments(int argc, const char* const* argv) {
  CompareArguments parsed;
  parsed.lengths = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
  CommandLine line("fovea_compare", "attention operators on real input, side by side.");
  detail::add_compare_options(line, parsed);
  line.excludes("--text", {"--qkv"});
  line.excludes("--draw",
                {"--qkv", "--text", "--advise", "--operators", "--causal", "--lengths", "--limit",
                 "--dtype", "--heads", "--width", "--threads", "--repeat", "--json", "--against"});
  parsed.help = !line.parse(argc, argv);
  parsed.lengths_given = line.has("--lengths");
  parsed.heads_given = line.has("--heads");
  parsed.width_given = line.has("--width");
  for (const char* option : {"--heads", "--width"}) {
    if (line.has(option) && !line.has("--text") && !parsed.advise) {
      throw ArgumentError(std::string(option) +
                          " is of an embedded text; it needs --text, or --advise");
    }
  }
  if (line.has("--text") && !parsed.lengths_given) parsed.lengths = {1024, 4096, 16384};
  if (parsed.advise && !parsed.lengths_given) parsed.lengths = {2048};
  return parsed;
}

}  // namespace bench
