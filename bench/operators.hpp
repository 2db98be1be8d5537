// SPDX-License-Identifier: MIT
/// \file
/// The operators that fovea_bench times and fovea_compare compares: one line each. The first one
/// is full attention, which fovea_compare measures the others against.
#pragma once

#include <vector>

#include "bench/operator_entry.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"

namespace bench {

/// Families of full attention, dense: every width that a kernel treats differently.
inline std::vector<Family> dense_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}}, {.width = 32, .lengths = {4096}},
          {.width = 80, .lengths = {4096}},           {.width = 128, .lengths = {2048}},
          {.scalar = Scalar::f64, .lengths = {2048}}, {.threads = 2, .lengths = {4096}}};
}

inline std::vector<Family> causal_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}},
          {.scalar = Scalar::f64, .lengths = {2048}},
          {.threads = 2, .lengths = {4096}}};
}

/// Families of operators that are linear in N.
inline std::vector<Family> linear_families() {
  return {{.lengths = {2048, 4096, 8192, 16384}}, {.threads = 2, .lengths = {16384}}};
}

inline std::vector<Family> baseline_families() { return {{.lengths = {1024, 4096}}}; }

/// Every operator, in the order of the table.
inline std::vector<Entry> operators() {
  using fovea::FullAttention;
  using fovea::LocalAttention;
  constexpr Index whole = EigenBaseline::kWholeMatrix;
  // clang-format off
  return {
      softmax_entry({"full", "dense", "full"}, FullAttention{}, dense_families()),
      softmax_entry({"full", "causal", "full, causal"}, FullAttention{{.causal = true}}, causal_families()),
      softmax_entry({"local", "window:128", "local, 128 + 128"}, LocalAttention{{128, 128}}, linear_families()),
      softmax_entry({"local", "window:4", ""}, LocalAttention{{4, 4}}, linear_families()),
      eigen_entry({"naive_eigen", "dense", "Eigen, naive"}, {whole, false}, baseline_families()),
      eigen_entry({"naive_eigen", "causal", "Eigen, naive, causal"}, {whole, true}, baseline_families()),
      eigen_entry({"blocked_eigen", "dense", "Eigen, blocked"}, {128, false}, baseline_families()),
      eigen_entry({"blocked_eigen", "causal", "Eigen, blocked, causal"}, {128, true}, baseline_families()),
  };
  // clang-format on
}

}  // namespace bench
