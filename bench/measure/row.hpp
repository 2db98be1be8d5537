// SPDX-License-Identifier: MIT
/// \file
/// What is measured of a pass: a row of a table.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "fovea/core/config.hpp"

namespace bench {

using fovea::Index;

/// What one pass does.
enum class Pass {
  forward,
  backward,    ///< after a forward pass that is not timed
  training,    ///< forward and backward
  decode,      ///< one query after N keys
  dense_mask,  ///< forward by full attention with a mask of the same pattern
  plan,        ///< no attention: every block of the plans of a forward pass
  select,      ///< no attention: the keys of a forward pass, chosen by a sketch
  graph,       ///< no attention: the graph of a forward pass
};

constexpr const char* name(Pass pass) {
  constexpr const char* names[] = {"forward",    "backward", "training", "decode",
                                   "dense_mask", "plan",     "select",   "graph"};
  return names[static_cast<int>(pass)];
}

/// How an operator is called.
struct Names {
  std::string op;            ///< first part of a benchmark's name: "full"
  std::string variant = {};  ///< its options: "causal"
  std::string label = {};    ///< in fovea_compare; empty: not there
  Pass pass = Pass::forward;
  std::string storage = {};  ///< the type of the tensors, where it is not that of the arithmetic
};

/// What a result may have lost when it was rounded to the type that it is stored in.
struct Rounding {
  double share = 0;  ///< of its size
  double least = 0;  ///< of results near 0

  double of(double result) const { return 1.01 * std::max(share * std::abs(result), least); }
};

/// How far results are from the truth; a NaN anywhere makes both infinite.
struct Error {
  double ratio = 0;     ///< largest |error| / (u A (1 + B))
  double absolute = 0;  ///< largest |error|

  void add(double error, double unit) {
    if (!(error <= std::numeric_limits<double>::max())) {
      error = std::numeric_limits<double>::infinity();
    }
    absolute = std::max(absolute, error);
    if (error > 0) ratio = std::max(ratio, unit > 0 ? error / unit : error / 0x1p-1074);
  }
  /// Adds an error less what rounding the truth to another type makes; a NaN stays one.
  void add(double error, double truth, double unit, const Rounding& rounding) {
    const double allowed = rounding.of(truth);
    add(error <= allowed ? 0 : error - allowed, unit);
  }
  void add(const Error& other) {
    ratio = std::max(ratio, other.ratio);
    absolute = std::max(absolute, other.absolute);
  }
};

/// Rows of each head that are compared with the truth.
inline constexpr Index kErrorRows = 16;

/// A row of the table.
struct Row {
  Names names;
  bool causal = false;  ///< no row sees a later key
  Index n = 0;
  std::string skipped;  ///< why nothing was measured; empty: it was
  bool failed = false;  ///< it was tried, and threw what `skipped` says
  int runs = 0;
  double seconds = 0;             ///< median of one pass
  double least_seconds = 0;       ///< of the fastest run
  double useful_gflops = 0;       ///< of the matrix products of the visible pairs
  double peak_fraction = 0;       ///< of the FMA peak measured before and after, times the threads
  double sustained_fraction = 0;  ///< of the sustained peak of the same bursts
  double cpu_seconds = 0;         ///< mean of one pass, all threads
  double cpu_share = 0;           ///< of the threads; the rest of the time the machine was busy
  Index workspace_bytes = 0;  ///< of the call, without inputs and output; all that a decoder holds
  Error error;                ///< against the truth of the same operator
  /// Speed against full attention, and |out - full| / |full|, of forward passes; none if that
  /// full attention was not run. A causal row is measured against causal full attention.
  std::optional<double> speed_up;
  std::optional<double> difference;
  std::string yardstick;                ///< the label of that full attention
  Index compared_rows = 0;              ///< the last ones, where that is not all of them
  std::optional<double> other_seconds;  ///< of another run, where it is laid over this one
};

}  // namespace bench
