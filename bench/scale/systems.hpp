// SPDX-License-Identifier: MIT
/// \file
/// The operators that fovea_scale measures over ranks, and what its model knows of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/io/gaussian.hpp"
#include "fovea/attention.hpp"
#include "fovea/distributed.hpp"

namespace bench {

using fovea::Index;
using fovea::distributed::RowLayout;
using fovea::distributed::Rows;
using fovea::distributed::Traffic;

/// D of queries, keys and values.
inline constexpr Index kWidth = 64;
/// M, the dominant indices of a key of FSAT.
inline constexpr Index kDominant = 4;

/// What the model knows of an operator: numbers for N rows on R ranks.
struct Costs {
  std::function<double(double n)> pairs;            ///< of the whole sequence
  std::function<double(double n, double r)> bytes;  ///< sent by the rank that sends most
  std::function<double(double r)> messages;         ///< one after the other
  /// The share that ranks do one by one: of a chain over H heads the part 1 / H.
  double serial = 0;
};

/// An operator to be measured.
struct System {
  std::string name;
  RowLayout (*layout)(Index, int);
  /// The pass in one process, and over ranks.
  std::function<void(const fovea::View<const float>& qkv, const fovea::View<float>& out)> one;
  std::function<Traffic(const fovea::View<const float>& qkv, const fovea::View<float>& out,
                        const Rows& rows)>
      spread;
  Costs costs;
};

/// The operator reads one tensor as q, k and v: what is in it does not change the time.
template <class Op>
inline System system_of(std::string name, const Op& op, RowLayout (*layout)(Index, int),
                        Costs costs) {
  const auto inputs = [](const fovea::View<const float>& x) {
    fovea::InputsOf<Op, float> in;
    in.q = x;
    in.k = x;
    in.v = x;
    if constexpr (requires { in.sketch_q; }) {
      const fovea::Shape sketch = {1, 1, x.rows(), 8};
      in.sketch_q = fovea::View<const float>(x.data(), sketch, x.strides());
      in.sketch_k = in.sketch_q;
    }
    return in;
  };
  return {std::move(name), layout,
          [=](const auto& x, const auto& out) { op.forward(inputs(x), out); },
          [=](const auto& x, const auto& out, const Rows& rows) {
            return fovea::distributed::forward(op, inputs(x), out, rows);
          },
          std::move(costs)};
}

/// FSAT with M = 4 dominant indices anywhere in the sequence for each key and head.
inline System fsat_system(Index heads, RowLayout (*layout)(Index, int), Costs costs) {
  // What a call reads beside q, k and v is made at the first call and kept.
  struct Made {
    std::vector<float> of_one;
    std::vector<float> of_rank;
  };
  const auto made = std::make_shared<Made>();
  const auto call = [=](const fovea::View<const float>& x, std::vector<float>& dominant, Index rows,
                        std::uint32_t seed) {
    const Index count = heads * x.rows() * kDominant;
    if (dominant.empty() && count > 0) {
      dominant = gaussians(3, seed, count);
      // The normal distribution function, nearly: indices are spread evenly.
      for (float& d : dominant) d = static_cast<float>(rows - 1) / (1 + std::exp(-1.702F * d));
    }
    fovea::FsatInputs<float> in{x, x, x};
    in.dominant = fovea::View<const float>(dominant.data(), {1, heads, x.rows(), kDominant});
    return in;
  };
  const auto op = [](Index rows) { return fovea::FsatAttention(fovea::FsatOptions{rows}); };
  return {"FSAT", layout,
          [=](const auto& x, const auto& out) {
            op(x.rows()).forward(call(x, made->of_one, x.rows(), 1000), out);
          },
          [=](const auto& x, const auto& out, const Rows& rows) {
            const auto seed = static_cast<std::uint32_t>(rows.ranks().rank());
            return fovea::distributed::forward(
                op(rows.count()), call(x, made->of_rank, rows.count(), seed), out, rows);
          },
          std::move(costs)};
}

/// All operators, for so many heads.
inline std::vector<System> systems(Index heads) {
  const double row = 2.0 * kWidth * sizeof(float) * static_cast<double>(heads);  // k and v
  const auto bytes = [&](fovea::Index elements) {
    return static_cast<double>(elements * heads) * sizeof(float);
  };
  const fovea::LinearShape map = {1, kWidth, kWidth};
  const double state = bytes(fovea::linear_state_elements<float>(map));
  const double sums = bytes(fovea::linear_sum_elements<float>(map));
  // Every row goes to all other ranks. Under a causal pattern zigzag rows of the last rank do, too:
  // of its two pieces all see the first, and all ranks before it the second.
  const auto to_all = [=](double n, double r) { return row * n * (r - 1) / r; };
  const auto neighbours = [](double r) { return r > 1 ? 1.0 : 0.0; };
  const auto all = [](double r) { return r - 1; };
  constexpr double l = 128;
  return {
      system_of("full, causal", fovea::FullAttention{{.causal = true}}, RowLayout::zigzag,
                {[](double n) { return n * n / 2; }, to_all, all}),
      system_of("full", fovea::FullAttention{}, RowLayout::contiguous,
                {[](double n) { return n * n; }, to_all, all}),
      system_of("window 128 + 128", fovea::LocalAttention{{.left = 128, .right = 128}},
                RowLayout::contiguous,
                {[](double n) { return 257 * n; },
                 [=](double, double r) { return row * 128 * std::min(r - 1, 2.0); }, neighbours}),
      system_of("strided 128",
                fovea::StridedAttention{{.stride = 128, .heads = fovea::HeadAssignment::merged}},
                RowLayout::zigzag, {[=](double n) { return n * (l + n / l / 2); }, to_all, all}),
      // A block of keys is drawn by three blocks of queries on average, and rank 0 sees all.
      system_of("BigBird", fovea::BigBirdAttention{}, RowLayout::contiguous,
                {[](double n) { return 64 * 8 * n; },
                 [=](double n, double r) { return row * n / r * std::min(r - 1, 4.0); }, all}),
      system_of("linear", fovea::LinearAttention<fovea::EluPlusOne>(), RowLayout::contiguous,
                {[](double n) { return n * kWidth; },
                 [=](double n, double r) {
                   return sums * (n / fovea::kLinearSegment / r + 1) * (r - 1) / r;
                 },
                 all}),
      system_of(
          "linear, causal", fovea::LinearAttention<fovea::EluPlusOne>({.causal = true}),
          RowLayout::contiguous,
          {[](double n) { return n * kWidth; }, [=](double, double r) { return r > 1 ? state : 0; },
           all, 1.0 / static_cast<double>(heads)}),
      system_of("FMM, causal", fovea::FmmOneKernel({.near = {.left = 128}, .causal = true}),
                RowLayout::contiguous,
                {[](double n) { return n * (129 + kWidth); },
                 [=](double, double r) { return r > 1 ? state + 128 * row : 0; }, all,
                 kWidth / (129.0 + kWidth) / static_cast<double>(heads)}),
      system_of("Smart Bird", fovea::SmartBirdAttention{{.keys_per_row = 20}},
                RowLayout::contiguous, {[](double n) { return n * n; }, to_all, all}),
      // A key stays at home if none of its edges in any head leads to a rank.
      fsat_system(heads, RowLayout::contiguous,
                  {[=](double n) { return n * kDominant; },
                   [=](double n, double r) {
                     const double edges = static_cast<double>(heads * kDominant);
                     const double key = row + edges * sizeof(float);
                     return key * n * (r - 1) / r * (1 - std::pow(1 - 1 / r, edges));
                   },
                   all}),
  };
}

}  // namespace bench
