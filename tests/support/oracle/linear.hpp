// SPDX-License-Identifier: MIT
/// \file
/// Linear attention as MATHS.md, section 4 writes it (FMMformer, eqs. 8-10): O(N^2) weights
/// w_ij = <phi(q_i), phi(k_j)> over a reference mask of visible pairs, nothing clever.
///
/// With kappa = sum |phi(q)_d phi(k_j)_d| / |denominator|, which is 1 for maps that are not
/// negative, the gauge of a map's term is the larger of
///   sum_j,d |phi(q)_d phi(k_j)_d v_j| / |denominator|, which its numerator is computed from, and
///   kappa |term|, since the relative error of the denominator is kappa;
/// for maps that are not negative that is sum w |v| / sum w of tests/README.md, "How
/// results are judged" Nothing is demanded where kappa is so large that rounding decides the sign
/// of a denominator, and where denominators or, for gradients, quotients by them are too small for
/// T.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/oracle/feature_map.hpp"
#include "support/oracle/reference_mask.hpp"
#include "support/oracle/softmax.hpp"

namespace fovea_test {

enum class OraclePolicy { propagate, zero_row, signed_floor };

/// Linear attention's parameters for the oracles.
template <class T>
struct OracleLinear {
  std::vector<OracleMap<T>> maps;
  OraclePolicy policy = OraclePolicy::propagate;
  Wide<T> tau = 0;  // of signed_floor
  ReferenceMask reference_mask;
  Wide<T> share = 1;      // what the sum over the maps is multiplied by
  bool is_joint = false;  // whether all maps have one denominator
};

/// Products of features may underflow: what T then loses, in units of its roundoff, when rows of q
/// are brought to the size of 1 if they are beyond 2^40.
template <class T>
Wide<T> lost_of_products(const std::vector<Wide<T>>& features) {
  Wide<T> most = 0;
  for (const Wide<T> x : features) most = std::max(most, std::abs(x));
  const bool is_scaled = most < std::ldexp(Wide<T>{1}, -40) || most > std::ldexp(Wide<T>{1}, 40);
  return kFaint<T> * (is_scaled ? most : 1);
}

/// The weights of one row under one map. Vectors over the visible keys, or over D.
template <class T>
struct OracleLinearRow {
  using W = Wide<T>;
  std::vector<W> q;            // [D] phi(q)
  std::vector<W> k;            // [keys, D] phi(k)
  std::vector<W> z;            // [D] sum of phi(k)
  std::vector<W> w;            // [keys]
  std::vector<W> size;         // [keys] sum_d |phi(q)_d phi(k)_d|, and what may underflow
  W den = 0;                   // what is divided by
  W kappa = 0;                 // see above
  bool is_zeroed = false;      // by the policy
  bool is_floored = false;     // den = sign tau sum_d |q_d z_d|
  bool is_open = false;        // rounding decides its sign, or it underflows
  bool is_faint = false;       // so small that what it divides may overflow
  bool slope_is_open = false;  // rounding decides whether it is floored, or a sign of a slope

  /// The derivative of den by q_d is slope(d) z_d, and by z_d slope(d) q_d.
  W slope(std::size_t d, W tau) const {
    if (!is_floored) return 1;
    const W term = q[d] * z[d];
    return (den < 0 ? -tau : tau) * (term > 0 ? 1 : term < 0 ? -1 : 0);
  }
};

/// One row of one head: its position, and the rows of k that it sees.
struct OracleLinearPlace {
  Index batch;
  Index head;
  Index query;  // its row of q
  Index key_head;
  std::vector<Index> keys;
};

namespace detail {

template <class T>
void set_denominator(const OracleLinear<T>& op, const std::vector<Wide<T>>& sizes_of_z,
                     OracleLinearRow<T>& row) {
  using W = Wide<T>;
  W terms = 0;  // sum over keys and d
  W floor = 0;  // sum over d of |q_d z_d|
  for (std::size_t d = 0; d < row.q.size(); ++d) {
    row.den += row.q[d] * row.z[d];
    terms += std::abs(row.q[d]) * sizes_of_z[d];
    floor += op.tau * std::abs(row.q[d] * row.z[d]);
  }
  const W doubt = 32 * kRoundoff<T> * terms;
  const W size = std::abs(row.den);
  const W lost = lost_of_products<T>(row.q);
  row.is_open = terms > 0 && (size <= doubt || size < kRoundoff<T> * lost);
  row.is_faint = terms > 0 && size < lost;
  if (op.policy == OraclePolicy::zero_row) row.is_zeroed = row.den == 0;
  if (op.policy == OraclePolicy::signed_floor && size < floor) {
    row.is_floored = true;
    row.den = row.den < 0 ? -floor : floor;
  }
  if (op.policy == OraclePolicy::signed_floor) {
    row.slope_is_open = std::abs(size - floor) <= doubt && doubt > 0;
    for (std::size_t d = 0; row.is_floored && d < row.q.size(); ++d) {
      const bool is_small = std::abs(row.z[d]) <= 32 * kRoundoff<T> * sizes_of_z[d];
      row.slope_is_open = row.slope_is_open || (is_small && sizes_of_z[d] > 0);
    }
  }
  row.kappa = terms / std::abs(row.den);
}

}  // namespace detail

/// The maps of one denominator, and the features of q and k.
template <class T>
struct OracleFarMap {
  std::vector<OracleMap<T>> maps;
  OracleFeatures<T> q, k;

  bool positive() const {
    return std::all_of(maps.begin(), maps.end(), [](const auto& map) { return map.positive; });
  }
};
template <class T>
std::vector<OracleFarMap<T>> oracle_far_maps(const bench::AllInputs<T>& in,
                                             const OracleLinear<T>& op) {
  std::vector<OracleFarMap<T>> all;
  const auto add = [&](const std::vector<OracleMap<T>>& maps) {
    all.push_back({maps, {maps, in.q}, {maps, in.k}});
  };
  if (op.is_joint) {
    add(op.maps);
  } else {
    for (const OracleMap<T>& map : op.maps) add({map});
  }
  return all;
}

template <class T>
OracleLinearRow<T> oracle_linear_row(const OracleLinear<T>& op, const OracleFarMap<T>& features,
                                     const OracleLinearPlace& at) {
  using W = Wide<T>;
  OracleLinearRow<T> row;
  row.q = features.q.row(at.batch, at.head, at.query);
  row.z.assign(row.q.size(), 0);
  std::vector<W> sizes_of_z(row.q.size());
  const W lost = lost_of_products<T>(row.q);
  for (const Index j : at.keys) {
    const std::vector<W> k = features.k.row(at.batch, at.key_head, j);
    W w = 0;
    W size = 0;
    for (std::size_t d = 0; d < k.size(); ++d) {
      w += row.q[d] * k[d];
      size += std::abs(row.q[d] * k[d]) + lost;
      row.z[d] += k[d];
      sizes_of_z[d] += std::abs(k[d]);
    }
    row.k.insert(row.k.end(), k.begin(), k.end());
    row.w.push_back(w);
    row.size.push_back(size);
  }
  detail::set_denominator(op, sizes_of_z, row);
  return row;
}

/// One map's term of a row's output column.
template <class T>
struct OracleTerm {
  Wide<T> value = 0;
  Wide<T> gauge = 0;
};

template <class T>
OracleTerm<T> oracle_term(const bench::AllInputs<T>& in, const OracleLinearPlace& at,
                          const OracleLinearRow<T>& row, Index column) {
  using W = Wide<T>;
  if (row.is_zeroed) return {};
  W numerator = 0;
  W size = 0;
  for (const W q : row.q) size += std::abs(q) * kFaint<T>;  // sums of faint values
  for (std::size_t n = 0; n < at.keys.size(); ++n) {
    const W v = in.v(at.batch, at.key_head, at.keys[n], column);
    numerator += row.w[n] * v;
    size += row.size[n] * std::abs(v);
  }
  const W value = numerator / row.den;
  return {value, std::max(size / std::abs(row.den), row.kappa * std::abs(value))};
}

/// Calls f(place) for every row that sees a key.
template <class T, class F>
void for_each_linear_row(const bench::AllInputs<T>& in, const ReferenceMask& reference_mask,
                         F&& f) {
  for (const OracleSequence& s : oracle_sequences(in)) {
    for (Index h = 0; h < in.q.heads(); ++h) {
      for (Index r = 0; r < s.queries; ++r) {
        OracleLinearPlace at{s.batch, h, s.first_query + r, h / (in.q.heads() / in.k.heads()), {}};
        for (Index j = 0; j < std::min(s.keys, s.length); ++j) {
          if (reference_mask(s.pair(h, r, j))) at.keys.push_back(s.first_key + j);
        }
        if (!at.keys.empty()) f(at);
      }
    }
  }
}

/// The factor of the gauge of joint maps: sums over the features of several maps have
/// correspondingly more roundings, which mostly cancel. Separate maps have separate gauges.
template <class T>
Wide<T> joint_roundings(const OracleFarMap<T>& map) {
  return std::sqrt(static_cast<Wide<T>>(map.maps.size()));
}

/// [B, Hq, Nq, Dv].
template <class T>
Reference<T> linear_oracle(const bench::AllInputs<T>& in, const OracleLinear<T>& op) {
  const Index width = in.v.width();
  Reference<T> out = zero_reference<T>({in.q.batch(), in.q.heads(), in.q.rows(), width});
  const std::vector<OracleFarMap<T>> maps = oracle_far_maps(in, op);
  for_each_linear_row(in, op.reference_mask, [&](const OracleLinearPlace& at) {
    const std::size_t first = place_of(out.shape, at.batch, at.head, at.query, 0);
    bool signs_are_known = true;
    for (const OracleFarMap<T>& map : maps) {
      const OracleLinearRow<T> row = oracle_linear_row(op, map, at);
      signs_are_known = signs_are_known && map.positive();
      const Wide<T> joint_maps = joint_roundings(map);
      for (Index c = 0; c < width; ++c) {
        const OracleTerm<T> term = oracle_term(in, at, row, c);
        const std::size_t i = first + as_size(c);
        out.value[i] += op.share * term.value;
        out.gauge[i] += op.share * joint_maps * term.gauge;
        if (row.is_open) out.relax(i, Demand::nothing);
      }
    }
    for (std::size_t i = first; i < first + as_size(width); ++i) {
      // An infinite value times the weight or times its parts, which may cancel or be 0.
      if (std::isinf(out.value[i]) && !signs_are_known) out.relax(i, Demand::not_finite);
    }
  });
  return out;
}

}  // namespace fovea_test
