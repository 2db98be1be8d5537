// SPDX-License-Identifier: MIT
/// \file
/// The table that fovea_compare prints as it goes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/io/human.hpp"
#include "bench/measure/compare_measure.hpp"
#include "bench/measure/selection.hpp"

namespace bench {

/// x with that printf format, or "-".
inline std::string shown(const char* format, std::optional<double> x) {
  if (!x) return "-";
  char text[64];
  std::snprintf(text, sizeof text, format, *x);
  return text;
}

/// The distance from full attention, if it is known; 0 if only rounding differs.
inline std::string distance_text(const Row& row) {
  if (row.difference && *row.difference < kSameAsFull) return "0";
  return shown("%.3f", row.difference);
}

/// \param with_other whether another run is laid over this one
inline void print_header(bool with_other) {
  std::printf("%-23s %6s %9s %8s %5s %8s %9s %7s %9s %9s%s\n", "operator", "N", "ms", "GFLOP/s",
              "peak", "speed-up", "workspace", "error", "max |err|", "from full",
              with_other ? "   against" : "");
  std::printf("%-23s %6s %9s %8s %5s %8s %9s %7s %9s %9s%s\n", "", "", "median", "useful", "share",
              "to full", "", "units", "", "rel. L2", with_other ? "  its time" : "");
  std::fflush(stdout);
}

inline void print_row(const Row& row) {
  std::printf("%-23s %6td ", row.names.label.c_str(), row.n);
  if (!row.skipped.empty()) {
    std::printf("%s: %s\n", row.failed ? "FAILED" : "skipped", row.skipped.c_str());
  } else {
    std::printf("%9.3f %8.1f %5.2f %8s %9s %7.2f %9.1e %9s%s%s\n", row.seconds * 1e3,
                row.useful_gflops, row.peak_fraction, shown("%.2fx", row.speed_up).c_str(),
                human_bytes(static_cast<double>(row.workspace_bytes)).c_str(), row.error.ratio,
                row.error.absolute, shown("%.1e", row.difference).c_str(),
                row.other_seconds ? shown(" %8.2fx", *row.other_seconds / row.seconds).c_str() : "",
                row.error.ratio <= kErrorLimit ? "" : "  WRONG");
  }
  std::fflush(stdout);
}

/// A line for each distance from full attention within which another operator is the fastest, at
/// the longest N; nothing if no distance is known. \param causal of which operators
inline std::string fastest_lines(const std::vector<Row>& rows, bool causal) {
  const Index n = longest_with_distance(rows, causal);
  std::string text;
  for (const Row* const row : fastest_at_distances(rows, causal, n)) {
    text += "  " + distance_text(*row) + ": " + row->names.label + ", " +
            shown("%.3g", row->seconds * 1e3) + " ms\n";
  }
  if (text.empty()) return text;
  return std::string("fastest within each distance from full attention, ") +
         (causal ? "causal" : "not causal") + ", N = " + std::to_string(n) + ":\n" + text;
}

/// The forward passes at one N, fastest first, with distance and memory. A star has what no other
/// is both faster and nearer than. \param causal which of them
inline std::string advice(const std::vector<Row>& rows, bool causal, Index n) {
  std::vector<const Row*> sorted;
  std::string left_out;
  Index compared = 0;
  for (const Row& row : rows) {
    if (row.n != n || row.causal != causal || row.names.pass != Pass::forward) continue;
    if (!row.skipped.empty()) {
      left_out += "omitted: " + row.names.label + ": " + row.skipped + "\n";
      continue;
    }
    sorted.push_back(&row);
    compared = std::max(compared, row.compared_rows);
  }
  std::ranges::stable_sort(sorted, {}, &Row::seconds);
  const std::vector<const Row*> best = fastest_at_distances(rows, causal, n);
  char line[160];
  std::snprintf(line, sizeof line, "%-24s %10s %9s %9s %10s\n", "operator", "ms", "speed-up",
                "distance", "memory");
  std::string text = "N = " + std::to_string(n) + (causal ? ", causal" : ", not causal") +
                     ", fastest first\n" + line;
  for (const Row* const row : sorted) {
    std::snprintf(line, sizeof line, "%-24s %10.3f %9s %9s %10s%s%s\n", row->names.label.c_str(),
                  row->seconds * 1e3, shown("%.2fx", row->speed_up).c_str(),
                  distance_text(*row).c_str(),
                  human_bytes(static_cast<double>(row->workspace_bytes)).c_str(),
                  std::ranges::find(best, row) != best.end() ? " *" : "",
                  row->error.ratio <= kErrorLimit ? "" : "  WRONG");
    text += line;
  }
  text += left_out +
          "speed-up and distance |out - full| / |full| are relative to full attention; memory is "
          "scratch\n* no other operator is both faster and nearer to full attention\n";
  if (compared > 0) {
    text += "distances are for the last " + std::to_string(compared) +
            " rows: full attention of all rows would take longer than --limit\n";
  }
  return text;
}

/// A line for each operator: the N from which on it is faster than full attention.
inline std::vector<std::string> overtaking_lines(const std::vector<Overtaking>& all) {
  std::vector<std::string> lines;
  for (const Overtaking& one : all) {
    lines.push_back(one.label + (one.from ? ": from N = " + std::to_string(*one.from)
                                          : ": not up to N = " + std::to_string(one.longest)));
  }
  return lines;
}

/// A line for each operator that also ran as full attention with a mask: its speed-up at each
/// length. Empty if there is none.
inline std::string mask_factors(const std::vector<Row>& rows) {
  std::map<std::string, std::string> factors;  // of a label
  for (const Row& masked : rows) {
    if (masked.names.pass != Pass::dense_mask || !masked.skipped.empty()) continue;
    const auto row = std::ranges::find_if(rows, [&](const Row& x) {
      return x.names.pass == Pass::forward && x.names.op == masked.names.op &&
             x.names.variant == masked.names.variant && x.n == masked.n && x.skipped.empty();
    });
    if (row == rows.end()) continue;
    factors[row->names.label] +=
        ", " + shown("%.1fx", masked.seconds / row->seconds) + " at N = " + std::to_string(row->n);
  }
  std::string text;
  for (const auto& [label, list] : factors) {
    text += "\n" + label + " is faster than full attention with a mask of the same pairs:\n  " +
            list.substr(2) + "\n";
  }
  return text;
}

}  // namespace bench
