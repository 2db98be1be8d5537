// SPDX-License-Identifier: MIT
/// \file
/// Numbers that take two rows of fovea_bench: how much more time one took than the other, and
/// whether that is more than its useful flops explain. Times are those of the calling thread, so
/// that other processes do not count: both rows must be of one thread.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/cells.hpp"
#include "bench/measure/stopwatch.hpp"

namespace bench {

/// Names of two rows: the time of the first is divided by that of the second.
using RowPair = std::pair<std::string, std::string>;

/// Times of the rows that ran. A row that ran several times has its median.
class RowTimes {
 public:
  void add(const std::string& name, double time) { times_[name].push_back(time); }

  /// In place of the single times, which may not be reported.
  void set_median(const std::string& name, double time) { times_[name] = {time}; }

  bool has(const std::string& name) const { return times_.count(name) != 0; }

  /// \pre has(name)
  double median(const std::string& name) const { return bench::median(times_.at(name)); }

 private:
  std::map<std::string, std::vector<double>> times_;
};

/// Each mask and each plan over the forward pass of the same operator, and the given pairs.
inline std::vector<RowPair> row_pairs(const std::vector<Cell>& cells, std::vector<RowPair> pairs) {
  for (const Cell& cell : cells) {
    Names names = cell.entry->names;
    if (names.pass != Pass::dense_mask && names.pass != Pass::plan) continue;
    names.pass = Pass::forward;
    pairs.emplace_back(cell.name, name_of(names, cell.family, cell.n));
  }
  return pairs;
}

/// A line for each pair of which both rows ran; empty if there is none.
inline std::string ratio_lines(const std::vector<Cell>& cells, const std::vector<RowPair>& pairs,
                               const RowTimes& times) {
  const auto flops = [&](const std::string& name) {
    const auto cell = std::ranges::find(cells, name, &Cell::name);
    return cell->entry->forward_flops(cell->shape());
  };
  std::string text;
  for (const auto& [above, below] : pairs) {
    if (!times.has(above) || !times.has(below)) continue;
    const double time = times.median(above) / times.median(below);
    const double work = flops(above) / flops(below);
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, "%10.4f %10.4f %10.4f  ", time, work, time / work);
    text += numbers + above + "\n" + std::string(30, ' ') + "over  " + below + "\n";
  }
  if (text.empty()) return text;
  return "\n  CPU time       work  time/work of a row over another (work: flops of forward)\n" +
         text;
}

}  // namespace bench
