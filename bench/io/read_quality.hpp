// SPDX-License-Identifier: MIT
/// \file
/// A run of fovea_quality, read from its JSON, for plots. Test: tests/bench/fovea_quality_test.cpp.
#pragma once

#include <algorithm>
#include <string>

#include "bench/io/compare_json.hpp"
#include "bench/io/json.hpp"
#include "bench/io/quality_report.hpp"

namespace bench {

namespace detail {

inline QualityRun quality_of(const Json& json) {
  QualityRun all;
  read_facts(json, all.run);
  all.run.arguments.causal = json.at("causal") == "yes";
  all.run.shape.keys = json.at("n");
  for (const Json& head : json.at("heads")) {
    for (const HeadKind kind : kHeadKinds) {
      if (head.at("kind") == name(kind)) all.kinds.push_back(kind);
    }
  }
  for (const Json& result : json.at("results")) {
    QualityRow& row = all.rows.emplace_back();
    const std::string name = result.at("name");
    const std::size_t comma = std::min(name.rfind(", "), name.size());
    row.choice.system = result.at("operator");
    row.choice.series = name.substr(0, comma);
    row.choice.parameter = comma < name.size() ? name.substr(comma + 2) : "";
    row.seconds = result.at("milliseconds").get<double>() * 1e-3;
    for (const Json& head : result.at("heads")) {
      row.heads.push_back({.distance = head.at("distance")});
    }
  }
  for (const Json& point : json.at("policies")) {
    const std::string name = point.at("policy");
    if (all.policies.empty() || all.policies.back().name != name) {
      all.policies.push_back({name, {}});
    }
    all.policies.back().of_keys.push_back({.weight = point.at("weight")});
  }
  return all;
}

}  // namespace detail

/// \throws std::runtime_error if the file is not a result of fovea_quality
inline QualityRun read_quality(const std::string& file) {
  return read_result(file, "fovea_quality", detail::quality_of);
}

}  // namespace bench
