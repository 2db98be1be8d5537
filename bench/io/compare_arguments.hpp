// SPDX-License-Identifier: MIT
/// \file
/// The command line of fovea_compare.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/config.hpp"

namespace bench {

using fovea::Index;

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

/// A command line that cannot be understood; its message is one line.
struct ArgumentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The tensors that are compared on unless others are given, below the project's folder.
inline constexpr const char* kKeptTensors = "bench/data";

/// The text that is the project's sources.
inline constexpr const char* kOwnSources = "sources";

inline constexpr std::string_view kCompareHelp =
    R"(fovea_compare: attention operators on real input, side by side.

usage: fovea_compare [options]

input (default: heads of three layers of SmolLM2-135M over a text of 2048 tokens)
  --qkv DIR        q.npy, k.npy and v.npy in DIR: of 16, 32 or 64 bits, [B,H,N,D], [H,N,D] or
                   [N,D]; `language_model --dump-qkv DIR` writes those of a model
  --text FILE      instead the bytes of FILE, embedded by random tables; a short text is repeated;
                   `sources` are those of this project
The sketch of Smart Bird is computed: 4 dimensions nearest to the mean of the heads' logits.

which operator
  --advise         for --lengths N, --heads H, --width D and --causal: the operators sorted by time,
                   with distance from full attention and memory   (N = 2048; heads and width of the
                   input). Input with fewer rows or heads is repeated; for another width the
                   project's sources are embedded, as by --text. The output says which.

what is computed
  --operators LIST only these, comma-separated: strided,fmm,... ; full attention stays beside them
  --causal         only what sees no later key
  --lengths LIST   sequence lengths, comma-separated     (powers of 2 from 512 on, as many as the
                   tensors have rows, to 65536; of a text 1024,4096,16384)
  --limit SECONDS  passes that would take longer are left out   (2)
  --dtype TYPE     of the tensors: f32, f64, f16 or bf16, if the build has it; cmake/compare.sh
                   builds what is asked for   (f32)
  --heads H        heads of an embedded text, or to advise on     (8)
  --width D        width of their heads                           (64)
  --threads T      threads                               (1)
  --repeat R       timed runs of each cell, at least; the median counts   (3)
                         (a third fewer where one takes over 1.5 s)

output
  --plots DIR      directory of plots, report.html and JSON, made if missing   (out)
  --json FILE      where the JSON goes                   (compare.json in that directory)
  --draw FILE      nothing is measured: plots and report of the JSON of an earlier run
  --against FILE   the JSON of another run, of another machine for example, laid over this one
  --help           this text

Speed-up and distance are from full attention, for causal operators from causal full attention.
The JSON is written after each cell, so that a run that is interrupted keeps what it has.
The operators run at the instruction-set level of the machine; FOVEA_ISA=baseline|v3|v4 caps it.
)";

/// The flags that take a value.
inline constexpr std::array<std::string_view, 14> kCompareFlags = {
    "--text", "--qkv",   "--lengths", "--heads",     "--width", "--threads", "--repeat",
    "--json", "--plots", "--against", "--operators", "--limit", "--dtype",   "--draw"};

namespace detail {

/// The whole of text as an integer in [low, high].
inline Index argument_number(std::string_view flag, std::string_view text, Index low, Index high) {
  Index number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || number < low || number > high) {
    throw ArgumentError(std::string(flag) + ": '" + std::string(text) +
                        "' is no whole number from " + std::to_string(low) + " to " +
                        std::to_string(high));
  }
  return number;
}

inline std::vector<Index> argument_lengths(std::string_view flag, std::string_view text) {
  std::vector<Index> lengths;
  while (true) {
    const std::size_t comma = text.find(',');
    lengths.push_back(argument_number(flag, text.substr(0, comma), 1, Index{1} << 24));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  std::sort(lengths.begin(), lengths.end());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

/// The whole of text as seconds above 0.
inline double argument_seconds(std::string_view flag, std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !(number > 0) || number > 1e6) {
    throw ArgumentError(std::string(flag) + ": '" + std::string(text) +
                        "' is no number of seconds above 0");
  }
  return number;
}

/// The parts between commas; none of them is empty.
inline std::vector<std::string> argument_list(std::string_view flag, std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    if (parts.back().empty()) throw ArgumentError(std::string(flag) + ": a name is empty");
    begin = end + 1;
  }
  return parts;
}

/// A type of tensors.
inline TensorType argument_type(std::string_view flag, std::string_view text) {
  std::string known;
  for (const TensorTypeNames& names : kTensorTypes) {
    if (names.flag == text) return names.type;
    known += (known.empty() ? "" : ", ") + std::string(names.flag);
  }
  throw ArgumentError(std::string(flag) + ": '" + std::string(text) +
                      "' is not known; the types are " + known);
}

/// Sets what one of kCompareFlags says.
inline void set_argument(CompareArguments& to, std::string_view flag, std::string_view value) {
  if (flag == "--text") to.text_file = value;
  if (flag == "--qkv") to.qkv_directory = value;
  if (flag == "--lengths") to.lengths = argument_lengths(flag, value);
  if (flag == "--heads") to.heads = argument_number(flag, value, 1, 1024);
  if (flag == "--width") to.width = argument_number(flag, value, 1, 4096);
  if (flag == "--threads") to.threads = static_cast<int>(argument_number(flag, value, 1, 1024));
  if (flag == "--repeat") to.repeat = static_cast<int>(argument_number(flag, value, 1, 100000));
  if (flag == "--json") to.json_file = value;
  if (flag == "--plots") to.directory = value;
  if (flag == "--against") to.against_file = value;
  if (flag == "--draw") to.drawn_file = value;
  if (flag == "--operators") to.operators = argument_list(flag, value);
  if (flag == "--limit") to.limit = argument_seconds(flag, value);
  if (flag == "--dtype") to.type = argument_type(flag, value);
}

}  // namespace detail

/// `--flag value` and `--flag=value`, each flag at most once. \throws ArgumentError
inline CompareArguments parse_compare_arguments(std::span<const std::string_view> arguments) {
  CompareArguments parsed;
  parsed.lengths = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
  std::vector<std::string_view> seen;
  const auto was_given = [&](std::string_view flag) {
    return std::find(seen.begin(), seen.end(), flag) != seen.end();
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") {
      parsed.help = true;
      continue;
    }
    if (arguments[i] == "--causal") {
      parsed.causal = true;
      continue;
    }
    if (arguments[i] == "--advise") {
      parsed.advise = true;
      continue;
    }
    const std::size_t equals = arguments[i].find('=');
    const std::string_view flag = arguments[i].substr(0, equals);
    if (std::find(kCompareFlags.begin(), kCompareFlags.end(), flag) == kCompareFlags.end()) {
      throw ArgumentError("'" + std::string(arguments[i]) + "' is not understood; see --help");
    }
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      value = arguments[++i];
    }
    if (value.empty()) throw ArgumentError(std::string(flag) + " needs a value; see --help");
    if (was_given(flag)) throw ArgumentError(std::string(flag) + " is given twice");
    detail::set_argument(parsed, flag, value);
    seen.push_back(flag);
  }
  parsed.lengths_given = was_given("--lengths");
  parsed.heads_given = was_given("--heads");
  parsed.width_given = was_given("--width");
  if (was_given("--qkv") && was_given("--text")) {
    throw ArgumentError("--text says nothing beside --qkv; leave one out");
  }
  for (const std::string_view flag : {"--heads", "--width"}) {
    if (was_given(flag) && !was_given("--text") && !parsed.advise) {
      throw ArgumentError(std::string(flag) +
                          " is of an embedded text; it needs --text, or --advise");
    }
  }
  const bool is_drawing_alone =
      !parsed.advise && !parsed.causal && std::ranges::all_of(seen, [](std::string_view flag) {
        return flag == "--draw" || flag == "--plots";
      });
  if (was_given("--draw") && !is_drawing_alone) {
    throw ArgumentError("--draw measures nothing; beside it only --plots has a meaning");
  }
  if (was_given("--text") && !parsed.lengths_given) parsed.lengths = {1024, 4096, 16384};
  if (parsed.advise && !parsed.lengths_given) parsed.lengths = {2048};
  return parsed;
}

}  // namespace bench
