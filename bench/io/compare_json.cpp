// SPDX-License-Identifier: MIT
#include "bench/io/compare_json.hpp"

#include <algorithm>
#include <stdexcept>

#include "bench/io/json.hpp"
#include "bench/io/system_styles.hpp"

namespace bench {

namespace {

/// null if there is none.
Json optional(const std::optional<double>& x) { return x ? Json(*x) : Json(); }

Json row_json(const Row& row) {
  Json json = {{"operator", row.names.op},
               {"pass", name(row.names.pass)},
               {"variant", row.names.variant},
               {"label", row.names.label},
               {"causal", row.causal},
               {"n", row.n},
               {"workspace_bytes", row.workspace_bytes}};
  if (!row.skipped.empty()) {
    json[row.failed ? "failed" : "skipped"] = row.skipped;
    return json;
  }
  json.update({{"runs", row.runs},
               {"milliseconds", row.seconds * 1e3},
               {"least_milliseconds", row.least_seconds * 1e3},
               {"cpu_milliseconds", row.cpu_seconds * 1e3},
               {"useful_gflops", row.useful_gflops},
               {"peak_fraction", row.peak_fraction},
               {"sustained_fraction", row.sustained_fraction},
               {"cpu_share", row.cpu_share}});
  if (!row.yardstick.empty()) json["full"] = row.yardstick;
  json["speed_up_to_full"] = optional(row.speed_up);
  json["error_ratio"] = row.error.ratio;
  json["max_absolute_error"] = row.error.absolute;
  json["relative_difference_from_full"] = optional(row.difference);
  if (row.compared_rows > 0) json["compared_rows"] = row.compared_rows;
  if (row.other_seconds) json["against_milliseconds"] = *row.other_seconds * 1e3;
  return json;
}

Row read_row(const Json& json) {
  // None if it is null, or not there.
  const auto optional = [&](const char* key) -> std::optional<double> {
    if (!json.contains(key) || json.at(key).is_null()) return {};
    return json.at(key).get<double>();
  };
  Row row;
  row.names.label = json.at("label");
  row.names.op = json.value("operator", system_of(row.names.label));
  row.names.variant = json.value("variant", "");
  const std::string pass = json.value("pass", name(Pass::training));
  for (int p = 0; p <= static_cast<int>(Pass::graph); ++p) {
    if (pass == name(static_cast<Pass>(p))) row.names.pass = static_cast<Pass>(p);
  }
  row.n = json.at("n");
  row.yardstick = json.value("full", "");
  // Files of an earlier version do not say it.
  row.causal =
      json.value("causal", row.yardstick == "full, causal" || row.names.pass == Pass::decode);
  row.workspace_bytes = json.at(json.contains("peak_bytes") ? "peak_bytes" : "workspace_bytes");
  row.failed = json.contains("failed");
  row.skipped = json.value(row.failed ? "failed" : "skipped", "");
  if (!row.skipped.empty()) return row;
  row.seconds = json.at("milliseconds").get<double>() * 1e-3;
  if (row.n < 1 || !(row.seconds > 0)) {
    throw std::invalid_argument("a result has no time or length");
  }
  row.useful_gflops = json.value("useful_gflops", 0.0);
  row.peak_fraction = json.value("peak_fraction", 0.0);
  row.error.ratio = json.value("error_ratio", 0.0);
  row.speed_up = optional("speed_up_to_full");
  row.difference = optional("relative_difference_from_full");
  row.compared_rows = json.value("compared_rows", Index{0});
  return row;
}

Comparison comparison_of(const Json& json) {
  Comparison run;
  read_facts(json, run);
  if (json.contains("input")) {
    const Json& input = json.at("input");
    run.input = input.at("what");
    for (const TensorTypeNames& type : kTensorTypes) {
      if (input.at("type") == type.name) run.arguments.type = type.type;
    }
    run.shape.query_heads = input.at("query_heads");
    run.shape.key_heads = input.at("key_heads");
    run.shape.width = input.at("width");
    run.shape.value_width = input.at("value_width");
  }
  run.arguments.threads = json.at("threads");
  run.left_out = json.value("left_out", "");
  run.arguments.lengths.clear();
  for (const Json& item : json.at("results")) {
    run.rows.push_back(read_row(item));
    run.arguments.lengths.push_back(run.rows.back().n);
  }
  sort_lengths(run.arguments);
  return run;
}

}  // namespace

std::string to_json(const Comparison& run) {
  const char* const unit = run.arguments.type == TensorType::f64 ? "u A (1 + B), u = 2^-53"
                           : has_16_bits(run.arguments.type)
                               ? "u A (1 + B), u = 2^-24, beyond rounding the output to 16 bits"
                               : "u A (1 + B), u = 2^-24";
  Json json = facts("fovea_compare", run.command, run.machine);
  json["caption"] = subtitle_of(run);
  json["input"] = {{"what", run.input},
                   {"type", type_name(run.arguments)},
                   {"query_heads", run.shape.query_heads},
                   {"key_heads", run.shape.key_heads},
                   {"width", run.shape.width},
                   {"value_width", run.shape.value_width}};
  json["threads"] = run.arguments.threads;
  json["repeat"] = run.arguments.repeat;
  json["error_rows_per_head"] = kErrorRows;
  json["error_unit"] = unit;
  if (!run.left_out.empty()) json["left_out"] = run.left_out;
  json["seconds"] = run.seconds;
  json["results"] = Json::array();
  for (const Row& row : run.rows) json["results"].push_back(row_json(row));
  return text_of(json);
}

void read_facts(const Json& json, Comparison& run) {
  run.command = json.at("command");
  run.date = json.at("date");
  run.machine.clear();
  for (const auto& [key, value] : json.at("machine").items()) run.machine.emplace_back(key, value);
  run.caption = json.value("caption", "");
}

Comparison read_comparison(const std::string& file, const std::string& program) {
  return read_result(file, program, comparison_of);
}

}  // namespace bench
