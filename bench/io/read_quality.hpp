// SPDX-License-Identifier: MIT
/// \file
/// A run of fovea_quality, read from its JSON, for plots. Test: tests/bench/fovea_quality_test.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "bench/io/quality_report.hpp"
#include "bench/io/read_comparison.hpp"

namespace bench {

/// \throws std::runtime_error if the file is no result of fovea_quality
inline QualityRun read_quality(const std::string& file) {
  const std::string program = "fovea_quality";
  const fovea_test::Json root = read_result(file, program);
  const RunReader json(file, program, root);
  QualityRun all;
  detail::read_facts(json, all.run);
  all.run.arguments.causal = json.text("causal") == "yes";
  all.run.shape.keys = json.integer("n");
  for (const fovea_test::Json& head : json.at("heads").items) {
    for (const HeadKind kind : kHeadKinds) {
      if (json.in(head).text("kind") == name(kind)) all.kinds.push_back(kind);
    }
  }
  for (const fovea_test::Json& item : json.at("results").items) {
    const RunReader result = json.in(item);
    QualityRow row;
    const std::string& name = result.text("name");
    const std::size_t comma = std::min(name.rfind(", "), name.size());
    row.choice.system = result.text("operator");
    row.choice.series = name.substr(0, comma);
    row.choice.parameter = comma < name.size() ? name.substr(comma + 2) : "";
    row.seconds = result.number("milliseconds") * 1e-3;
    for (const fovea_test::Json& head : result.at("heads").items) {
      row.heads.push_back({.distance = json.in(head).number("distance")});
    }
    all.rows.push_back(std::move(row));
  }
  for (const fovea_test::Json& item : json.at("policies").items) {
    const RunReader point = json.in(item);
    const std::string& name = point.text("policy");
    if (all.policies.empty() || all.policies.back().name != name)
      all.policies.push_back({name, {}});
    all.policies.back().of_keys.push_back({.weight = point.number("weight")});
  }
  return all;
}

}  // namespace bench
