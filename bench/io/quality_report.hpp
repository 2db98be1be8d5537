// SPDX-License-Identifier: MIT
/// \file
/// What fovea_quality found out, as JSON and as pictures. Test: tests/bench/fovea_quality_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/io/compare_plots.hpp"
#include "bench/io/json.hpp"
#include "bench/measure/head_kinds.hpp"
#include "bench/measure/quality.hpp"
#include "bench/measure/quality_mixed.hpp"

namespace bench {

/// A row of the table.
struct QualityRow {
  Choice choice;
  double seconds = 0;
  Index workspace_bytes = 0;
  std::vector<Found> heads;
  bool is_best = false;

  /// The mean over heads of a kind, or over all.
  double mean(double Found::*number, const std::vector<HeadKind>& kinds,
              const HeadKind* of = nullptr) const {
    double sum = 0;
    int count = 0;
    for (std::size_t h = 0; h < heads.size(); ++h) {
      if (of != nullptr && kinds[h] != *of) continue;
      sum += heads[h].*number;
      ++count;
    }
    return count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
  }
};

/// What the maps of the heads of a kind lose without a band and a rest of rank r.
struct SplitRow {
  HeadKind kind;
  Index band;
  std::array<double, 4> errors;  ///< by rank
  double rank;                   ///< of the rest, of the first kRankRows positions
};

inline constexpr Index kRankRows = 256;  // as in Figure 3 of the FMMformer paper
inline constexpr std::array<Index, 5> kBands = {0, 5, 10, 20, 64};

/// What a policy finds.
struct PolicyRow {
  std::string name;
  std::vector<Found> of_keys;  ///< mean over heads, for kKeysOfFigure
};

/// The style of a policy in plots: "top K" has that of "top_k".
inline std::string policy_style(std::string name) {
  for (char& c : name) c = c == ' ' ? '_' : static_cast<char>(std::tolower(c));
  return name;
}

/// One run of the program.
struct QualityRun {
  Comparison run;  ///< its arguments, the context of all numbers, and omitted operators
  std::vector<WeightShares> shares;
  std::vector<HeadKind> kinds;
  std::vector<QualityRow> rows;
  std::vector<SplitRow> splits;
  std::vector<PolicyRow> policies;
};

inline Json row_json(const QualityRow& row, const std::vector<HeadKind>& kinds) {
  Json json = {{"name", row.choice.name()},
               {"operator", row.choice.system},
               {"milliseconds", row.seconds * 1e3},
               {"workspace_bytes", row.workspace_bytes},
               {"weight", row.mean(&Found::weight, kinds)},
               {"relative_difference_from_full", row.mean(&Found::distance, kinds)},
               {"cosine", row.mean(&Found::cosine, kinds)}};
  for (const HeadKind kind : kHeadKinds) {
    json[name(kind)] = row.mean(&Found::distance, kinds, &kind);
  }
  json["best"] = row.is_best ? "*" : "";
  for (const Found& head : row.heads) {
    json["heads"].push_back(
        {{"distance", head.distance}, {"cosine", head.cosine}, {"weight", head.weight}});
  }
  return json;
}

/// Below the title of the plot, and in the JSON, from which captions in documents are made.
inline std::string quality_caption(const Comparison& run) {
  return std::string(run.arguments.causal ? "causal" : "not causal") +
         ", N = " + std::to_string(run.shape.keys) + ", " + subtitle_of(run);
}

inline Json quality_json(const QualityRun& all) {
  Json json = facts("fovea_quality", all.run.command, all.run.machine);
  json.update({{"caption", quality_caption(all.run)},
               {"input", all.run.input},
               {"n", all.run.shape.keys},
               {"causal", all.run.arguments.causal ? "yes" : "no"},
               {"left_out", all.run.left_out},
               {"seconds", all.run.seconds}});
  for (std::size_t h = 0; h < all.shares.size(); ++h) {
    json["heads"].push_back({{"head", std::to_string(h)},
                             {"kind", name(all.kinds[h])},
                             {"first_keys", all.shares[h].sink},
                             {"near", all.shares[h].nearby},
                             {"far", all.shares[h].distant}});
  }
  for (const QualityRow& row : all.rows) json["results"].push_back(row_json(row, all.kinds));
  for (const PolicyRow& row : all.policies) {
    for (std::size_t k = 0; k < row.of_keys.size(); ++k) {
      json["policies"].push_back({{"policy", row.name},
                                  {"keys_per_row", kKeysOfFigure[k]},
                                  {"weight", row.of_keys[k].weight},
                                  {"relative_difference_from_full", row.of_keys[k].distance}});
    }
  }
  for (const SplitRow& row : all.splits) {
    Json& split = json["splits"].emplace_back();
    split["name"] = std::string(name(row.kind)) + ", k = " + std::to_string(row.band);
    for (std::size_t r = 0; r < row.errors.size(); ++r) {
      split["rank_" + std::to_string(r)] = row.errors[r];
    }
    split["rank_of_rest"] = row.rank;
  }
  return json;
}

namespace detail {

/// Time and distance of a row. \param of the member that is the distance: of a kind of heads, or of
/// all
inline Point point_of(const Json& row, const char* of) {
  const Json& distance = row.at(of);
  return {row.at("milliseconds"), distance.is_null() ? 0 : distance.get<double>()};
}

/// Of the rows, those that no other is both faster and nearer than.
inline PlotSeries best_of(const Json& rows, const std::string& heads, const char* of) {
  PlotSeries best{"best for " + heads + " heads", heads == "all" ? "full" : "heads", {}};
  best.thick = true;
  for (const Json& row : rows) best.points.push_back(point_of(row, of));
  std::ranges::sort(best.points);
  double least = std::numeric_limits<double>::max();
  std::erase_if(best.points, [&](const Point& point) {
    // Full attention is at no distance, which has no place on the axis.
    if (!(point.second < least) || !(point.second > 0)) return true;
    least = point.second;
    return false;
  });
  return best;
}

}  // namespace detail

/// \param all of a run, as quality_json makes it
inline std::vector<SvgPlot> pictures(const Json& all) {
  constexpr const char* of_all = "relative_difference_from_full";
  const std::string causal = all.at("causal") == "yes" ? "causal" : "not causal";
  SvgPlot quality{"quality",
                  "Distance from full attention against time, " + causal,
                  all.at("caption"),
                  {.label = "milliseconds of a forward pass"},
                  {.label = "|out - full| / |full|, mean over heads"},
                  {},
                  false,
                  "an operator; marks are choices of its options",
                  "fastest within each distance, for heads of each kind"};
  const Json& results = all.at("results");
  quality.series.push_back(detail::best_of(results, "all", of_all));
  for (const HeadKind kind : kHeadKinds) {
    // Heads of one kind are all heads.
    const Json& heads = all.at("heads");
    if (std::ranges::all_of(heads, [&](const Json& h) { return h.at("kind") == name(kind); })) {
      continue;
    }
    PlotSeries best = detail::best_of(results, name(kind), name(kind));
    if (!best.points.empty()) quality.series.push_back(std::move(best));
  }
  for (const Json& row : results) {
    const std::string name = row.at("name");
    line_of(quality.series, name.substr(0, name.rfind(", ")), row.at("operator"))
        .points.push_back(detail::point_of(row, of_all));
  }
  SvgPlot policies{
      "policies",
      "Weight of full attention on the keys that a sketch finds",
      all.at("caption"),
      {.label = "keys of each row, K", .ticks = {kKeysOfFigure.begin(), kKeysOfFigure.end()}},
      {.label = "share of the weight of full attention"},
      {},
      true,
      "a policy of a sketch of " + std::to_string(kSketchWidth) + " dimensions for each key head"};
  for (const Json& point : all.at("policies")) {
    const std::string name = point.at("policy");
    line_of(policies.series, name, policy_style(name))
        .points.emplace_back(point.at("keys_per_row"), point.at("weight"));
  }
  return {quality, policies};
}

}  // namespace bench
