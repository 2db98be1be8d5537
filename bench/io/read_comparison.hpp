// SPDX-License-Identifier: MIT
/// \file
/// A run of fovea_compare, read from its JSON. Test: tests/bench/io/compare_against_test.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "bench/io/compare_json.hpp"
#include "bench/io/result_reader.hpp"
#include "bench/io/system_styles.hpp"

namespace bench {

namespace detail {

/// What all results of our programs say of themselves.
inline void read_facts(const RunReader& json, Comparison& run) {
  run.command.clear();
  for (const fovea_test::Json& word : json.at("command").items) run.command.push_back(word.text);
  run.date = json.text("date");
  run.machine.clear();
  const fovea_test::Json& machine = json.at("machine");
  for (std::size_t i = 0; i < machine.items.size(); ++i) {
    run.machine.emplace_back(machine.keys[i], machine.items[i].text);
  }
  run.caption = json.text_or("caption", "");
}

inline Row read_row(const RunReader& json) {
  Row row;
  row.names.label = json.text("label");
  row.names.op = json.text_or("operator", system_of(row.names.label));
  row.names.variant = json.text_or("variant", "");
  const std::string pass = json.text_or("pass", name(Pass::training));
  for (int p = 0; p <= static_cast<int>(Pass::graph); ++p) {
    if (pass == name(static_cast<Pass>(p))) row.names.pass = static_cast<Pass>(p);
  }
  row.n = json.integer("n");
  row.yardstick = json.text_or("full", "");
  // Files of an earlier version do not say it.
  const bool is_causal = row.yardstick == "full, causal" || row.names.pass == Pass::decode;
  row.causal = json.text_or("causal", is_causal ? "true" : "false") == "true";
  row.workspace_bytes = json.integer(json.has("peak_bytes") ? "peak_bytes" : "workspace_bytes");
  row.failed = json.has("failed");
  row.skipped = json.text_or(row.failed ? "failed" : "skipped", "");
  if (!row.skipped.empty()) return row;
  row.seconds = json.number("milliseconds") * 1e-3;
  if (row.n < 1 || !(row.seconds > 0)) json.refuse("a result has no time or length");
  row.useful_gflops = json.optional("useful_gflops").value_or(0);
  row.peak_fraction = json.optional("peak_fraction").value_or(0);
  row.error.ratio = json.optional("error_ratio").value_or(0);
  row.speed_up = json.optional("speed_up_to_full");
  row.difference = json.optional("relative_difference_from_full");
  row.compared_rows = static_cast<Index>(json.optional("compared_rows").value_or(0));
  return row;
}

}  // namespace detail

/// The data of plots and report. \param program fovea_compare, or one that has rows like it
/// \throws std::runtime_error if the file is no result of it
inline Comparison read_comparison(const std::string& file,
                                  const std::string& program = "fovea_compare") {
  const fovea_test::Json root = read_result(file, program);
  const RunReader json(file, program, root);
  Comparison run;
  detail::read_facts(json, run);
  if (json.has("input")) {
    const RunReader input = json.in(json.at("input"));
    run.input = input.text("what");
    for (const TensorTypeNames& type : kTensorTypes) {
      if (input.text("type") == type.name) run.arguments.type = type.type;
    }
    run.shape.query_heads = input.integer("query_heads");
    run.shape.key_heads = input.integer("key_heads");
    run.shape.width = input.integer("width");
    run.shape.value_width = input.integer("value_width");
  }
  run.arguments.threads = static_cast<int>(json.integer("threads"));
  run.left_out = json.text_or("left_out", "");
  run.arguments.lengths.clear();
  for (const fovea_test::Json& item : json.at("results").items) {
    run.rows.push_back(detail::read_row(json.in(item)));
    run.arguments.lengths.push_back(run.rows.back().n);
  }
  std::ranges::sort(run.arguments.lengths);
  const auto more = std::ranges::unique(run.arguments.lengths);
  run.arguments.lengths.erase(more.begin(), more.end());
  return run;
}

}  // namespace bench
