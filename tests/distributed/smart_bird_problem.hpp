// SPDX-License-Identifier: MIT
/// \file
/// The tensors of Smart Bird attention over ranks: those of a whole sequence or of a rank's rows.
#pragma once

#include <vector>

#include "fovea/attention/smart_bird.hpp"
#include "support/ranks.hpp"

namespace fovea_test {

/// The keys that a row chooses.
inline constexpr Index kChosenKeys = 6;

/// All tensors of a call.
template <class T>
struct SmartBirdProblem {
  SmartBirdProblem(Index batch, Index query_heads, Index key_heads, Index rows)
      : q({batch, query_heads, rows, 5}),
        k({batch, key_heads, rows, 5}),
        v({batch, key_heads, rows, 7}),
        sketch_q({batch, 1, rows, 3}),
        sketch_k({batch, 1, rows, 3}),
        out({batch, query_heads, rows, 7}),
        lse({batch, query_heads, rows, 1}),
        d_out(out.shape()),
        d_q(q.shape()),
        d_k(k.shape()),
        d_v(v.shape()),
        indices(as_size(batch * query_heads * rows * kChosenKeys)) {
    d_out.fill(gaussian(6));
    q.fill(gaussian(1));
    k.fill(gaussian(2));
    v.fill(gaussian(3));
    sketch_q.fill(gaussian(4));
    sketch_k.fill(gaussian(5));
  }
  SmartBirdProblem(const SmartBirdProblem& whole, const Sharding& rows)
      : q(own_part(whole.q, rows)),
        k(own_part(whole.k, rows)),
        v(own_part(whole.v, rows)),
        sketch_q(own_part(whole.sketch_q, rows)),
        sketch_k(own_part(whole.sketch_k, rows)),
        out(own_part(whole.out, rows)),
        lse(own_part(whole.lse, rows)),
        d_out(own_part(whole.d_out, rows)),
        d_q(own_part(whole.d_q, rows)),
        d_k(own_part(whole.d_k, rows, {.order = {0, 2, 1, 3}, .gap = 2})),
        d_v(own_part(whole.d_v, rows)),
        indices(as_size(size_of(lse.shape()) * kChosenKeys)),
        lengths(whole.lengths) {
    for (const Tensor<T>* x : {&out, &lse, &d_q, &d_k, &d_v}) x->fill(constant(77));
  }

  fovea::SmartBirdInputs<T> inputs() const {
    fovea::SmartBirdInputs<T> in{q.view(), k.view(), v.view(), lengths};
    in.sketch_q = sketch_q.view();
    in.sketch_k = sketch_k.view();
    return in;
  }
  fovea::View<Index> chosen() {
    Shape shape = lse.shape();
    shape[3] = kChosenKeys;
    return fovea::View<Index>(indices.data(), shape);
  }
  fovea::SmartBirdSaved<T> saved() { return {lse.view(), chosen()}; }

  fovea::SmartBirdGrads<T> grads() const { return {d_q.view(), d_k.view(), d_v.view()}; }

  Tensor<T> q, k, v, sketch_q, sketch_k, out, lse;
  Tensor<T> d_out, d_q, d_k, d_v;
  std::vector<Index> indices;
  std::vector<Index> lengths;
};

}  // namespace fovea_test
