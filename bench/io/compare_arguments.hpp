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

/// What the user asked for.
struct CompareArguments {
  std::string text_file;       ///< empty: the project's own sources
  std::string qkv_directory;   ///< empty: embed the text
  std::vector<Index> lengths;  ///< N, ascending, each once
  Index heads = 8;
  Index width = 64;
  int threads = 1;
  int repeat = 3;
  std::string json_file;  ///< empty: compare.json in the output directory
  std::string directory = "out";
  bool lengths_given = false;
  bool help = false;
};

/// A command line that cannot be understood; its message is one line.
struct ArgumentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::string_view kCompareHelp =
    R"(fovea_compare: attention operators on real input, side by side.

usage: fovea_compare [options]

input (default: the sources of this project as bytes)
  --text FILE      the bytes of FILE; a short text is repeated
  --qkv DIR        q.npy, k.npy and v.npy in DIR: of 16, 32 or 64 bits, [B,H,N,D], [H,N,D] or [N,D]
The sketch of Smart Bird is computed: 4 dimensions nearest to the mean of the heads' logits.

what is computed
  --lengths LIST   sequence lengths, comma-separated     (1024,4096,8192)
  --heads H        heads of an embedded text             (8)
  --width D        width of a head of an embedded text   (64)
  --threads T      threads                               (1)
  --repeat R       timed runs of each cell, at least; the median counts   (3)
                         (a third fewer where one takes over 1.5 s)

output
  --plots DIR      directory of plots and JSON, made if missing   (out)
  --json FILE      where the JSON goes                   (compare.json in that directory)
  --help           this text

Speed-up and distance are from full attention, for causal operators from causal full attention.
The operators run at the instruction-set level of the machine; FOVEA_ISA=baseline|v3|v4 caps it.
)";

/// The flags that take a value.
inline constexpr std::array<std::string_view, 9> kCompareFlags = {
    "--text",    "--qkv",    "--lengths", "--heads", "--width",
    "--threads", "--repeat", "--json",    "--plots"};

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
}

}  // namespace detail

/// `--flag value` and `--flag=value`, each flag at most once. \throws ArgumentError
inline CompareArguments parse_compare_arguments(std::span<const std::string_view> arguments) {
  CompareArguments parsed;
  parsed.lengths = {1024, 4096, 8192};
  std::vector<std::string_view> seen;
  const auto was_given = [&](std::string_view flag) {
    return std::find(seen.begin(), seen.end(), flag) != seen.end();
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--help" || arguments[i] == "-h") {
      parsed.help = true;
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
  for (const std::string_view flag : {"--text", "--heads", "--width"}) {
    if (was_given("--qkv") && was_given(flag)) {
      throw ArgumentError(std::string(flag) + " says nothing beside --qkv; leave one out");
    }
  }
  return parsed;
}

}  // namespace bench
