// SPDX-License-Identifier: MIT
/// \file
/// Calls of FSAT attention for tests: what they read, and what that should give.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "attention/call_problem.hpp"
#include "attention/dominant_fill.hpp"
#include "fovea/attention/fsat.hpp"
#include "support/oracle/fsat.hpp"

namespace fovea_test {

using fovea::FsatAttention;
using fovea::FsatOptions;

/// Every choice of what an edge is, for sequences of up to `tokens`.
inline std::vector<FsatOptions> fsat_options(Index tokens) {
  using fovea::Confidence;
  std::vector<FsatOptions> all;
  for (const EdgeSource edges : {EdgeSource::predicted, EdgeSource::random, EdgeSource::both}) {
    for (const Confidence confidence : {Confidence::density, Confidence::relative}) {
      for (const bool truncates : {true, false}) {
        FsatOptions options{.max_length = tokens};
        options.edges = edges;
        options.confidence = confidence;
        options.truncate_gradient = truncates;
        options.seed = 0x123456789abcdef;
        if (confidence == Confidence::relative)
          options.variance = 0.7 * static_cast<double>(tokens);
        if (truncates) options.scale = -0.4;
        all.push_back(options);
      }
    }
  }
  return all;
}

/// M slots of each key.
template <>
struct CallForm<FsatAttention> {
  static constexpr const char* name = "fsat";
  static inline const std::vector<TensorAxes> inputs = {
      {"q", "bHqd"}, {"k", "bhkd"}, {"v", "bhkv"}, {"dominant", "bHkM"}};
  static inline const std::vector<TensorAxes> saved = {};
  static constexpr const char* hidden = "qk";
  static constexpr bool is_cut = true;

  static bool draws(const FsatAttention& op) { return op.options.edges != EdgeSource::predicted; }
  static void complete(const FsatAttention& /*op*/, Extents& e) { e.emplace('M', 4); }

  template <class P>
  static void fill(const P& p, std::uint64_t seed) {
    p["dominant"].fill(dominant_fill(seed + 3, static_cast<double>(p.extents.at('k'))));
  }

  template <class T>
  static std::vector<ExpectedTensor<T>> expected(const CallProblem<FsatAttention, T>& p) {
    const auto of = fsat_oracle(p.all_inputs(), p.op.options);
    const auto grads = fsat_grad_oracle(p.all_inputs(), p.op.options, p.d_out.view());
    return {{"out", of.out, 16},          {"lse", of.lse, 8},
            {"d_q", grads.softmax.q, 32}, {"d_k", grads.softmax.k, 32},
            {"d_v", grads.softmax.v, 16}, {"d_dominant", grads.dominant, 32}};
  }
};

template <class T>
using FsatProblem = CallProblem<FsatAttention, T>;

template <>
struct CallCases<FsatAttention> {
  using Cases = std::vector<CallCase<FsatAttention>>;
  static constexpr double tolerance = 1e-8;

  static Cases conforming() {
    Cases all;
    const auto add = [&](Index most, const AttentionShape& shape, const Extents& more = {},
                         const std::vector<Index>& lengths = {},
                         const std::optional<Fill>& dominants = {}) {
      for (const FsatOptions& o : fsat_options(most)) {
        all.push_back({FsatAttention(o), shape, more, lengths});
        if (dominants) all.back().fills = {{"dominant", *dominants}};
      }
    };
    for (const Index tokens : {1, 2, 3, 17, 31, 64, 150}) {
      add(tokens, {1, 2, 2, tokens, tokens, 5, 3}, {{'M', 1 + tokens % 5}});
    }
    add(414, {2, 3, 3, 311, 311, 2, 2}, {{'M', 9}}, {311, 155});
    add(97, {5, 4, 2, 90, 90, 5, 3}, {{'M', 3}}, {90, 0, 1, 53, 89});
    add(97, {1, 6, 1, 90, 90, 5, 3});
    for (std::size_t n = all.size() - 12; n < all.size(); ++n) {
      all[n].cu_seqlens = {0, 30, 30, 31, 90};
    }
    // All keys have one query; and all slots of a key.
    add(200, {1, 2, 2, 200, 200, 5, 3}, {}, {}, [](Index, Index, Index j, Index m) {
      return 77 + 0.25 * static_cast<double>((j + m) % 4);
    });
    // Dominant indices at integers, just below them, at 0, at Lmax, which is a token or none, and
    // above it.
    for (const Index most : {20, 25}) {
      add(most, {1, 2, 2, 20, 20, 5, 3}, {{'M', 3}}, {}, ends(static_cast<double>(most)));
      for (std::size_t n = all.size() - 12; n < all.size(); ++n) {
        all[n].op.options.variance = 50;
      }
    }
    for (const Index width : {0, 1, 4, 7, 16, 33, 64, 80}) {
      FsatOptions options{.max_length = 300};
      options.edges = width % 2 == 0 ? EdgeSource::both : EdgeSource::predicted;
      options.variance = 2000;
      all.push_back({FsatAttention(options), {1, 2, 2, 130, 130, width, 81 - width}});
      all.push_back({FsatAttention(options), {1, 2, 2, 130, 130, width, width}});
    }
    return all;
  }
  static Cases large() {
    Cases all;
    for (const FsatOptions& o : fsat_options(700)) {
      all.push_back({FsatAttention(o), {2, 4, 2, 700, 700, 16, 3}, {}, {700, 411}});
    }
    // Few heads, whose graphs threads share, in three parts or more, in which sequences end
    // anywhere.
    FsatOptions options{.max_length = 40'000};
    options.edges = EdgeSource::both;
    const FsatAttention op(options);
    all.push_back({op, {1, 1, 1, 1100, 1100, 5, 3}, {{'M', 30}}});
    all.push_back({op, {2, 2, 1, 1500, 1500, 2, 2}, {{'M', 50}}, {513, 512}});
    all.push_back({op, {1, 1, 1, 1500, 1500, 2, 2}, {{'M', 50}}, {}, {0, 0, 700, 701, 1500}});
    // More tokens than parts are at their shortest.
    all.push_back({op, {1, 1, 1, 40'000, 40'000, 1, 1}, {{'M', 2}}});
    return all;
  }
  static Cases batches() {
    Cases all;
    for (const FsatOptions& o : fsat_options(120)) {
      // Random edges are those of the place: of the first sequence alone.
      for (const Index length : {77, 0, 1, 119}) {
        all.push_back({FsatAttention(o), {3, 4, 2, 120, 120, 5, 3}, {}, {length, 64, 120}});
      }
    }
    return all;
  }
  /// No index may cross an integer; not truncated, since truncation is no derivative.
  static Cases small() {
    Cases all;
    const auto inside = [](Index b, Index h, Index j, Index m) {
      const std::uint64_t bits = hash(5, b, h, j, m);
      return static_cast<double>(bits % 13) + 0.1 + 0.8 * uniform(bits);
    };
    for (FsatOptions options : fsat_options(30)) {
      options.truncate_gradient = false;
      for (const Index slots : {1, 3}) {
        all.push_back({FsatAttention(options), {1, 2, 1, 13, 13, 3, 2}, {{'M', slots}}});
        all.back().fills = {{"dominant", Fill(inside)}};
      }
    }
    return all;
  }

 private:
  /// Just below an integer in float, so in both scalars.
  static Fill ends(double n) {
    const auto below = [](double x) {
      return static_cast<double>(std::nextafter(static_cast<float>(x), 0.0F));
    };
    // Beyond what an index can be, too.
    constexpr double most = std::numeric_limits<float>::max();
    const std::array<double, 13> all = {0, 0.5,     1,        below(7), 7,           n - 1, n - 0.5,
                                        n, n + 3.5, below(n), 1e9,      below(1e19), most};
    return [all](Index, Index, Index j, Index m) { return all[as_size((j * 3 + m) % 13)]; };
  }
};

}  // namespace fovea_test
