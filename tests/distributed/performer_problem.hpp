// SPDX-License-Identifier: MIT
/// \file
/// Problems for tests of Performer attention over ranks: the tensors of a whole sequence or of a
/// rank's rows.
#pragma once

#include <vector>

#include "fovea/attention/performer.hpp"
#include "support/ranks.hpp"

namespace fovea_test {

/// All tensors of a call.
template <class T>
struct PerformerOfRows {
  static constexpr Index kFeatures = 21;

  PerformerOfRows(Index batch, Index query_heads, Index key_heads, Index rows)
      : q({batch, query_heads, rows, 5}),
        k({batch, key_heads, rows, 5}),
        v({batch, key_heads, rows, 7}),
        projection({1, 1, kFeatures, 5}),
        out({batch, query_heads, rows, 7}),
        d_out(out.shape()),
        d_q(q.shape()),
        d_k(k.shape()),
        d_v(v.shape()),
        d_projection(projection.shape()) {
    q.fill(gaussian(1));
    // Short keys have larger logits than long ones: where they become shorter, the running
    // references are raised.
    k.fill([&](Index b, Index h, Index n, Index c) {
      const double longer = 1 + 12.0 * static_cast<double>(rows - n) / static_cast<double>(rows);
      return longer * gaussian(2)(b, h, n, c);
    });
    v.fill(gaussian(3));
    d_out.fill(gaussian(5));
    fovea::draw_projection(7, projection.view());
  }
  PerformerOfRows(const PerformerOfRows& whole, const Sharding& rows)
      : q(own_part(whole.q, rows, {.order = {0, 2, 1, 3}, .gap = 3})),
        k(own_part(whole.k, rows)),
        v(own_part(whole.v, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        projection(whole.projection.in({})),
        out(own_part(whole.out, rows, {.order = {0, 2, 1, 3}, .gap = 2})),
        d_out(own_part(whole.d_out, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        d_q(own_part(whole.d_q, rows)),
        d_k(own_part(whole.d_k, rows, {.order = {0, 2, 1, 3}, .gap = 2})),
        d_v(own_part(whole.d_v, rows)),
        d_projection(projection.shape()),
        lengths(whole.lengths) {
    for (const Tensor<T>* x : {&out, &d_q, &d_k, &d_v, &d_projection}) x->fill(constant(77));
  }

  fovea::PerformerInputs<T> inputs() const {
    fovea::PerformerInputs<T> in;
    in.q = q.view();
    in.k = k.view();
    in.v = v.view();
    in.key_lengths = lengths;
    in.projection = projection.view();
    return in;
  }
  fovea::PerformerGrads<T> grads() const {
    fovea::PerformerGrads<T> all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    all.projection = d_projection.view();
    return all;
  }

  Tensor<T> q, k, v, projection, out;
  Tensor<T> d_out, d_q, d_k, d_v, d_projection;
  std::vector<Index> lengths;
};

}  // namespace fovea_test
