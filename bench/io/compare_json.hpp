// SPDX-License-Identifier: MIT
/// \file
/// Everything that fovea_compare found out, and its JSON. Test:
/// tests/bench/io/compare_against_test.cpp.
#pragma once

#include <algorithm>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/compare_arguments.hpp"
#include "bench/measure/row.hpp"
#include "fovea/attention/call/shapes.hpp"

namespace bench {

using fovea::AttentionShape;

/// One run of the program.
struct Comparison {
  std::vector<std::string> command;
  std::string date;
  std::vector<std::pair<std::string, std::string>> machine;  ///< machine_facts
  CompareArguments arguments;
  std::string input;     ///< what the sequence is, for people
  AttentionShape shape;  ///< of the longest sequence
  std::string left_out;  ///< what has no rows for the type of the tensors, and why
  std::vector<Row> rows;
  double seconds = 0;
  std::string caption = {};  ///< subtitle_of a run that was read from its JSON

  /// A fact of the machine; nothing if it is not known.
  std::string fact(const std::string& key) const {
    const auto found = std::ranges::find(machine, key, [](const auto& one) { return one.first; });
    return found == machine.end() ? "" : found->second;
  }
};

/// "9 heads on 3 key heads, D = 64".
inline std::string heads_and_width(const AttentionShape& shape) {
  const auto counted = [](Index n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  std::string text = counted(shape.query_heads, "head");
  if (shape.key_heads != shape.query_heads) text += " on " + counted(shape.key_heads, "key head");
  text += ", D = " + std::to_string(shape.width);
  if (shape.value_width != shape.width) text += ", Dv = " + std::to_string(shape.value_width);
  return text;
}

/// "8 heads, D = 64, float32, 1 thread, level v4, <processor>": below the title of every plot, and
/// in the JSON, from which captions in documents are made.
inline std::string subtitle_of(const Comparison& run) {
  if (!run.caption.empty()) return run.caption;
  return heads_and_width(run.shape) + ", " + type_name(run.arguments) + ", " +
         std::to_string(run.arguments.threads) +
         (run.arguments.threads == 1 ? " thread, level " : " threads, level ") +
         run.fact("isa_level") + ", " + run.fact("cpu");
}

/// Everything that was found out, as the text of a file.
std::string to_json(const Comparison& run);

/// The data of plots and report. \param program fovea_compare, or one that has rows like it
/// \throws std::runtime_error if the file is not a result of it
Comparison read_comparison(const std::string& file, const std::string& program = "fovea_compare");

/// Sets what all results say of themselves.
void read_facts(const nlohmann::ordered_json& json, Comparison& run);

}  // namespace bench
