// SPDX-License-Identifier: MIT
/// \file
/// What fovea_scale found out: JSON, the table of what the model is drawn out to, and its plots.
#pragma once

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/human.hpp"
#include "bench/io/json.hpp"
#include "bench/io/svg_plot.hpp"
#include "bench/measure/machine.hpp"
#include "bench/scale/measure.hpp"
#include "bench/scale/memory.hpp"
#include "bench/scale/model.hpp"
#include "fovea/kernels/softmax/block.hpp"

namespace bench {

inline constexpr int kMostRanks = 4096;

/// The model of one operator for the sequence that it is drawn out to.
struct OutlookOfSystem {
  Look look;
  Basis basis = Basis::exact;
  std::vector<Outlook> curve;
};

/// \param results of these systems, for that many rows
inline std::vector<OutlookOfSystem> outlooks(const std::vector<System>& systems,
                                             const std::vector<ScaleResult>& results, Index rows,
                                             const ScaleArguments& asked) {
  std::vector<OutlookOfSystem> all;
  for (std::size_t s = 0; s < systems.size(); ++s) {
    const Costs& costs = systems[s].pass(asked.backward).costs;
    const Work work = results[s].work.of_rows(costs, static_cast<double>(rows),
                                              static_cast<double>(asked.tokens));
    all.push_back(
        {systems[s].look, costs.basis,
         outlook(costs, systems[s].layout, asked.tokens, work, asked.network, kMostRanks)});
  }
  return all;
}

/// Bytes that all ranks send for each row, if all send as many as the one with most.
inline double bytes_per_token(const Outlook& at, Index tokens) {
  return at.bytes * at.ranks / static_cast<double>(tokens);
}

/// Speeds over one rank, and bytes a token.
inline void print_outlook(const std::vector<OutlookOfSystem>& all, const ScaleArguments& asked) {
  std::printf(
      "\nThe model, for %.3g tokens, %.3g GB/s and %.3g us: bytes per token and speed-up over one "
      "rank on R ranks; half: the number of ranks from which efficiency is below one half\n%-24s",
      static_cast<double>(asked.tokens), asked.network.bandwidth * 1e-9,
      asked.network.latency * 1e6, "operator");
  const int shown[] = {2, 16, 128, 1024, 4096};
  for (const int ranks : shown) std::printf(" %15s%-4d", "R = ", ranks);
  std::printf(" %8s\n", "half");
  for (const OutlookOfSystem& line : all) {
    std::printf("%-24s", line.look.name.c_str());
    for (const Outlook& at : line.curve) {
      if (std::ranges::find(shown, at.ranks) == std::end(shown)) continue;
      std::printf(" %9s %8.1fx", human_bytes(bytes_per_token(at, asked.tokens)).c_str(),
                  at.speed_up);
    }
    const int half = ranks_of_half_efficiency(line.curve);
    std::printf(" %8s\n", half == 0 ? "none" : std::to_string(half).c_str());
  }
}

/// Below the titles of the plots, and in the JSON, from which captions in documents are made.
inline std::string outlook_caption(const ScaleArguments& asked) {
  char text[160];
  std::snprintf(text, sizeof text,
                "N = %.3g, %td head%s, D = %td, float32, a core for each rank, %.3g GB/s, %.3g us",
                static_cast<double>(asked.tokens), asked.heads, asked.heads == 1 ? "" : "s", kWidth,
                asked.network.bandwidth * 1e-9, asked.network.latency * 1e6);
  return text;
}

namespace detail {

/// A plot of some operators. \param y its value at a place
template <class Y>
SvgPlot outlook_plot(const std::vector<OutlookOfSystem>& lines, const ScaleArguments& asked,
                     std::string file, std::string title, PlotAxis axis, const Y& y) {
  SvgPlot plot{std::move(file),
               std::move(title),
               outlook_caption(asked),
               {.label = "ranks"},
               std::move(axis)};
  plot.line = "an operator, by the model; its marks are 1, 2, 4, ... ranks";
  for (int ranks = 1; ranks <= kMostRanks; ranks *= 4) plot.x.ticks.push_back(ranks);
  for (const OutlookOfSystem& line : lines) {
    PlotSeries& series = line_of(plot.series, line.look.name, line.look.style);
    for (const Outlook& at : line.curve) series.points.emplace_back(at.ranks, y(at));
  }
  return plot;
}

/// Time, and bytes a token, against ranks. \param suffix of the files
inline void add_plots(std::vector<SvgPlot>& plots, const std::vector<OutlookOfSystem>& lines,
                      const ScaleArguments& asked, const std::string& suffix) {
  const std::string pass = asked.backward ? "a backward pass" : "a forward pass";
  const std::string by_model =
      std::string(lines[0].look.causal ? "" : "not ") + "causal, by the model";
  plots.push_back(outlook_plot(lines, asked, "scale_time" + suffix,
                               "Time of " + pass + " over ranks, " + by_model, {.label = "seconds"},
                               [](const Outlook& at) { return at.seconds; }));
  plots.push_back(outlook_plot(
      lines, asked, "scale_bytes" + suffix, "Bytes that " + pass + " sends, " + by_model,
      {.label = "bytes a token, of all ranks"},
      [&](const Outlook& at) { return bytes_per_token(at, asked.tokens); }));
}

/// Those of the operators that f chooses.
template <class F>
std::vector<OutlookOfSystem> chosen(const std::vector<OutlookOfSystem>& all, const F& f) {
  std::vector<OutlookOfSystem> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some),
               [&](const OutlookOfSystem& line) { return f(line.look); });
  return some;
}

}  // namespace detail

/// Time and bytes against ranks: of the main operators, and of each family that has others; what is
/// causal and what is not apart.
inline std::vector<SvgPlot> outlook_plots(const std::vector<OutlookOfSystem>& all,
                                          const ScaleArguments& asked) {
  const auto is_main = [](const Look& look) { return look.taken == Taken::always; };
  std::vector<SvgPlot> plots;
  for (const bool causal : {true, false}) {
    const std::string kind = causal ? "_causal" : "_not_causal";
    const auto some = detail::chosen(all, [=](const Look& look) { return look.causal == causal; });
    const auto main = detail::chosen(some, is_main);
    if (!main.empty()) detail::add_plots(plots, main, asked, kind);
    for (const Family family : kFamilies) {
      const auto lines =
          detail::chosen(some, [=](const Look& look) { return look.family == family; });
      if (detail::chosen(lines, is_main).size() == lines.size()) continue;
      detail::add_plots(plots, lines, asked, "_" + std::string(name_of(family)) + kind);
    }
  }
  return plots;
}

/// What the model was drawn out to in a run, read from its JSON, and in `asked` what plots say of
/// the run. \throws std::runtime_error if the file is not a result of fovea_scale
inline std::vector<OutlookOfSystem> read_outlooks(const std::string& file, ScaleArguments& asked) {
  return read_result(file, "fovea_scale", [&](const Json& json) {
    const Json& outlook = json.at("outlook");
    asked.heads = json.at("heads");
    asked.backward = json.at("pass") == "backward";
    asked.tokens = outlook.at("tokens");
    asked.network = {outlook.at("microseconds_of_a_message").get<double>() * 1e-6,
                     outlook.at("gigabytes_a_second").get<double>() * 1e9};
    std::vector<OutlookOfSystem> all;
    const Systems systems = all_systems(asked.heads, asked.backward);
    for (const Json& point : outlook.at("points")) {
      const std::string name = point.at("operator");
      if (all.empty() || all.back().look.name != name) {
        const auto system =
            std::ranges::find(systems, name, [](const System& s) { return s.look.name; });
        if (system == systems.end()) {
          throw std::runtime_error(file + ": this build has no operator '" + name + "'");
        }
        all.push_back({system->look, Basis::exact, {}});
      }
      all.back().curve.push_back({point.at("ranks"), point.at("seconds"), point.at("speed_up"),
                                  point.at("bytes_of_a_rank")});
    }
    return all;
  });
}

/// The context of every result.
inline Json scale_facts(const Stage& at, const ScaleArguments& asked,
                        const std::vector<std::string>& command) {
  Json json = facts("fovea_scale", command, machine_facts());
  json.update({{"pass", asked.backward ? "backward" : "forward"},
               {"ranks", at.ranks.size()},
               {"rows", at.rows},
               {"heads", asked.heads},
               {"width", kWidth},
               {"scaling", asked.weak ? "weak" : "strong"}});
  return json;
}

/// What the model is drawn out to.
inline Json outlook_json(const std::vector<OutlookOfSystem>& all, const ScaleArguments& asked) {
  Json json = {{"tokens", asked.tokens},
               {"gigabytes_a_second", asked.network.bandwidth * 1e-9},
               {"microseconds_of_a_message", asked.network.latency * 1e6}};
  for (const OutlookOfSystem& line : all) {
    const int half = ranks_of_half_efficiency(line.curve);
    json["operators"].push_back({{"operator", line.look.name},
                                 {"bytes_are", name_of(line.basis)},
                                 {"ranks_of_half_efficiency", half == 0 ? Json() : Json(half)}});
  }
  for (const OutlookOfSystem& line : all) {
    for (const Outlook& at : line.curve) {
      json["points"].push_back({{"operator", line.look.name},
                                {"ranks", at.ranks},
                                {"seconds", at.seconds},
                                {"speed_up", at.speed_up},
                                {"efficiency", at.speed_up / at.ranks},
                                {"bytes_of_a_rank", at.bytes},
                                {"bytes_a_token", bytes_per_token(at, asked.tokens)}});
    }
  }
  return json;
}

inline std::string times_json(const std::vector<ScaleResult>& results,
                              const std::vector<OutlookOfSystem>& drawn_out, const Stage& at,
                              const ScaleArguments& asked,
                              const std::vector<std::string>& command) {
  Json json = scale_facts(at, asked, command);
  json["microseconds_of_a_message"] = at.network.latency * 1e6;
  json["gigabytes_a_second"] = at.network.bandwidth * 1e-9;
  for (std::size_t r = 0; r < results.size(); ++r) {
    const ScaleResult& result = results[r];
    json["results"].push_back({{"operator", result.name},
                               {"one_process_milliseconds", result.one * 1e3},
                               {"one_rank_milliseconds", result.alone * 1e3},
                               {"milliseconds", result.sharded * 1e3},
                               {"speed_up", result.one / result.sharded},
                               {"speed_up_of_best", result.best_ratio},
                               {"bytes_sent", static_cast<Index>(result.sent)},
                               {"bytes_sent_in_model", result.sent_in_model},
                               {"bytes_sent_by_all", static_cast<Index>(result.sent_by_all)},
                               {"bytes_sent_by_all_in_model", result.sent_by_all_in_model},
                               {"bytes_are", name_of(drawn_out[r].basis)},
                               {"family", name_of(drawn_out[r].look.family)},
                               {"milliseconds_waited", result.waited * 1e3},
                               {"milliseconds_of_model", result.modelled * 1e3}});
  }
  json["caption"] = outlook_caption(asked);
  json["outlook"] = outlook_json(drawn_out, asked);
  return text_of(json);
}

inline std::string memory_json(const std::vector<MemoryResult>& results, const Stage& at,
                               const ScaleArguments& asked,
                               const std::vector<std::string>& command) {
  const Index of_row = asked.heads * 2 * kWidth * Index{sizeof(float)};
  const auto two_blocks = static_cast<double>(2 * fovea::kKeySegment * of_row);
  Json json = scale_facts(at, asked, command);
  for (const MemoryResult& result : results) {
    json["results"].push_back({{"operator", result.name},
                               {"peak_bytes", static_cast<Index>(result.peak)},
                               {"own_keys_and_values_bytes", static_cast<Index>(result.keys)},
                               {"own_and_two_blocks_bytes", result.keys + two_blocks},
                               {"seconds", result.seconds}});
  }
  return text_of(json);
}

}  // namespace bench
