// SPDX-License-Identifier: MIT
/// \file
/// Everything that fovea_compare found out, as JSON.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/compare_arguments.hpp"
#include "bench/io/facts.hpp"
#include "bench/io/json_writer.hpp"
#include "bench/measure/compare_measure.hpp"

namespace bench {

/// One run of the program.
struct Comparison {
  std::vector<std::string> command;
  std::string date = utc_now();
  std::vector<std::pair<std::string, std::string>> machine = machine_facts();
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

namespace detail {

inline void write_row(JsonWriter& json, const Row& row) {
  const auto optional = [&](const char* key, const std::optional<double>& x) {
    json.member(key, x.value_or(std::numeric_limits<double>::quiet_NaN()));
  };
  json.begin_object();
  json.member("operator", row.names.op);
  json.member("pass", name(row.names.pass));
  json.member("variant", row.names.variant);
  json.member("label", row.names.label);
  json.member("causal", row.causal);
  json.member("n", row.n);
  json.member("workspace_bytes", row.workspace_bytes);
  if (!row.skipped.empty()) {
    json.member(row.failed ? "failed" : "skipped", row.skipped);
  } else {
    json.member("runs", row.runs);
    json.member("milliseconds", row.seconds * 1e3);
    json.member("least_milliseconds", row.least_seconds * 1e3);
    json.member("cpu_milliseconds", row.cpu_seconds * 1e3);
    json.member("useful_gflops", row.useful_gflops);
    json.member("peak_fraction", row.peak_fraction);
    json.member("sustained_fraction", row.sustained_fraction);
    json.member("cpu_share", row.cpu_share);
    if (!row.yardstick.empty()) json.member("full", row.yardstick);
    optional("speed_up_to_full", row.speed_up);
    json.member("error_ratio", row.error.ratio);
    json.member("max_absolute_error", row.error.absolute);
    optional("relative_difference_from_full", row.difference);
    if (row.compared_rows > 0) json.member("compared_rows", row.compared_rows);
    if (row.other_seconds) json.member("against_milliseconds", *row.other_seconds * 1e3);
  }
  json.end();
}

}  // namespace detail

inline std::string to_json(const Comparison& run) {
  JsonWriter json;
  json.begin_object();
  write_facts(json, "fovea_compare", run.command);
  json.member("caption", subtitle_of(run));
  json.begin_object("input");
  json.member("what", run.input);
  json.member("type", type_name(run.arguments));
  json.member("query_heads", run.shape.query_heads);
  json.member("key_heads", run.shape.key_heads);
  json.member("width", run.shape.width);
  json.member("value_width", run.shape.value_width);
  json.end();
  json.member("threads", run.arguments.threads);
  json.member("repeat", run.arguments.repeat);
  json.member("error_rows_per_head", kErrorRows);
  json.member("error_unit", run.arguments.type == TensorType::f64 ? "u A (1 + B), u = 2^-53"
                            : has_16_bits(run.arguments.type)
                                ? "u A (1 + B), u = 2^-24, beyond rounding the output to 16 bits"
                                : "u A (1 + B), u = 2^-24");
  if (!run.left_out.empty()) json.member("left_out", run.left_out);
  json.member("seconds", run.seconds);
  json.begin_array("results");
  for (const Row& row : run.rows) detail::write_row(json, row);
  json.end();
  json.end();
  return json.text() + '\n';
}

}  // namespace bench
