// SPDX-License-Identifier: MIT
/// \file
/// The truth for some rows of the operators with a far field, in time linear in N. Its unit is that
/// of the library's own oracles (tests/support/oracle): u sum w |v| / sum w of a feature map, that
/// of the delta rule as delta_reference.hpp says, u A (1 + B) of the band, blended.
#pragma once

#include <vector>

#include "bench/reference/delta_reference.hpp"
#include "bench/reference/far_model.hpp"

namespace bench {

/// Sampled rows of one head.
template <class T>
struct FarRows {
  std::vector<Index> rows;             // of q
  std::vector<RowReference<T>> truth;  // of each

  FarRows(const AllInputs<T>& in, Index head, Index samples) {
    const Index count = std::min(samples, in.q.rows());
    const std::vector<Wide<T>> zeros(static_cast<std::size_t>(in.v.width()));
    for (Index s = 0; s < count; ++s) {
      rows.push_back(sampled_row(s, count, head, in.q.rows()));
      truth.push_back({zeros, zeros});
    }
  }
};

namespace detail {

/// Adds weight times the band's rows.
template <class T>
void add_band(const FarTokens<T>& x, const fovea::LocalAttention& near_field, Index head,
              Wide<T> weight, FarRows<T>& to) {
  using W = Wide<T>;
  for (std::size_t s = 0; s < to.rows.size(); ++s) {
    const BandRow<T> row = band_row(x, near_field, head, to.rows[s]);
    for (std::size_t n = 0; n < row.weights.size(); ++n) {
      const Index key = x.row(row.first + static_cast<Index>(n));
      for (std::size_t c = 0; c < to.truth[s].out.size(); ++c) {
        const W v = x.in.v(0, x.key_head(head), key, static_cast<Index>(c));
        to.truth[s].out[c] += weight * row.weights[n] * v;
        to.truth[s].unit[c] += weight * (row.weights[n] + kFaintWeight<T>)*std::abs(v) * row.gauge;
      }
    }
  }
}

/// Adds weight times the term of a feature map.
template <class T>
void add_sums(const FarTokens<T>& x, const WideMap<Wide<T>>& map, bool causal, Index head,
              Wide<T> weight, FarRows<T>& to) {
  using W = Wide<T>;
  const Index width = x.in.q.width();
  const std::vector<W> k = features_of(map, x.in.k, x.key_head(head));
  for (std::size_t s = 0; s < to.rows.size(); ++s) {
    std::vector<W> q;
    for (Index d = 0; d < width; ++d) q.push_back(map.value(x.in.q(0, head, to.rows[s], d)));
    std::vector<W> out(to.truth[s].out.size());
    std::vector<W> size(out.size());
    W total = 0;
    for (Index t = 0; t < x.end(x.position(to.rows[s]), causal); ++t) {
      const W w = dot(q.data(), k.data() + x.row(t) * width, width);
      total += w;
      for (std::size_t c = 0; c < out.size(); ++c) {
        const W v = x.in.v(0, x.key_head(head), x.row(t), static_cast<Index>(c));
        out[c] += w * v;
        size[c] += w * std::abs(v);
      }
    }
    for (std::size_t c = 0; c < out.size(); ++c) {
      to.truth[s].out[c] += weight * out[c] / total;
      to.truth[s].unit[c] += weight * size[c] / total;
    }
  }
}

/// Adds weight times the term of the delta rule.
template <class T>
void add_delta(const FarTokens<T>& x, const WideMap<Wide<T>>& map, Index head, Wide<T> weight,
               FarRows<T>& to) {
  DeltaHead<T> states(x, map, x.key_head(head));
  for (Index t = 0; t < x.count; ++t) {
    states.add(t);
    for (std::size_t s = 0; s < to.rows.size(); ++s) {
      if (x.position(to.rows[s]) != t) continue;
      const FeatureShares<T> q(map, x.in.q, head, to.rows[s]);
      for (std::size_t c = 0; c < to.truth[s].out.size(); ++c) {
        to.truth[s].out[c] += weight * states.read(q.share, c);
        to.truth[s].unit[c] += weight * states.read_size(q.share, c);
      }
    }
  }
}

}  // namespace detail

/// Compares `samples` rows of each head (of batch 0) of `out` with the truth.
/// \param rounding of `out`, which is no error
template <class T>
Error far_error(const FarModel<T>& model, const FarTokens<T>& x, const View<const T>& out,
                Index samples, const Rounding& rounding = {}) {
  using W = Wide<T>;
  constexpr double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  Error error;
  for (Index head = 0; head < out.heads(); ++head) {
    const auto [near_field, far_field] = blend_of(x.in, head);
    FarRows<T> want(x.in, head, samples);
    if (model.near_field) detail::add_band(x, *model.near_field, head, near_field, want);
    for (const auto& map : model.sums)
      detail::add_sums(x, map, model.causal, head, far_field, want);
    for (const auto& map : model.deltas) detail::add_delta(x, map, head, far_field, want);
    for (std::size_t s = 0; s < want.rows.size(); ++s) {
      for (std::size_t c = 0; c < want.truth[s].out.size(); ++c) {
        const W got = out(0, head, want.rows[s], static_cast<Index>(c));
        error.add(static_cast<double>(std::abs(got - want.truth[s].out[c])),
                  static_cast<double>(want.truth[s].out[c]),
                  u * static_cast<double>(want.truth[s].unit[c]), rounding);
      }
    }
  }
  return error;
}

}  // namespace bench
