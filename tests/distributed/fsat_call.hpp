// SPDX-License-Identifier: MIT
/// \file
/// The tensors of FSAT attention over ranks: those of a whole sequence or of a rank's rows.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/dominant_fill.hpp"
#include "fovea/attention/fsat.hpp"
#include "support/ranks.hpp"

namespace fovea_test {

/// All tensors of a call.
template <class T>
struct FsatCall {
  FsatCall(const FsatSizes& s, std::uint64_t seed)
      : q({s.batch, s.heads, s.tokens, s.width}),
        k({s.batch, s.key_heads, s.tokens, s.width}),
        v({s.batch, s.key_heads, s.tokens, s.value_width}),
        dominant({s.batch, s.heads, s.tokens, s.slots_per_key}),
        out({s.batch, s.heads, s.tokens, s.value_width}),
        lse({s.batch, s.heads, s.tokens, 1}),
        d_out(out.shape()),
        d_q(q.shape()),
        d_k(k.shape()),
        d_v(v.shape()),
        d_dominant(dominant.shape()) {
    d_out.fill(gaussian(seed + 4));
    q.fill(gaussian(seed));
    k.fill(gaussian(seed + 1));
    v.fill(gaussian(seed + 2));
    dominant.fill(dominant_fill(seed + 3, static_cast<double>(s.tokens)));
  }
  FsatCall(const FsatCall& whole, const Sharding& rows)
      : q(own_part(whole.q, rows, {.order = {0, 2, 1, 3}, .gap = 3})),
        k(own_part(whole.k, rows)),
        v(own_part(whole.v, rows)),
        dominant(own_part(whole.dominant, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        out(own_part(whole.out, rows)),
        lse(own_part(whole.lse, rows)),
        d_out(own_part(whole.d_out, rows)),
        d_q(own_part(whole.d_q, rows)),
        d_k(own_part(whole.d_k, rows, {.order = {0, 2, 1, 3}, .gap = 2})),
        d_v(own_part(whole.d_v, rows)),
        d_dominant(own_part(whole.d_dominant, rows, {.order = {2, 0, 1, 3}, .gap = 1})),
        lengths(whole.lengths) {
    for (const Tensor<T>* x : {&out, &lse, &d_q, &d_k, &d_v, &d_dominant}) x->fill(constant(77));
  }

  fovea::FsatInputs<T> inputs() const {
    fovea::FsatInputs<T> in{q.view(), k.view(), v.view(), lengths};
    in.dominant = dominant.view();
    return in;
  }
  fovea::FsatSaved<T> saved() const { return {lse.view()}; }

  fovea::FsatGrads<T> grads() const {
    fovea::FsatGrads<T> all;
    all.q = d_q.view();
    all.k = d_k.view();
    all.v = d_v.view();
    all.dominant = d_dominant.view();
    return all;
  }

  Tensor<T> q, k, v, dominant, out, lse;
  Tensor<T> d_out, d_q, d_k, d_v, d_dominant;
  std::vector<Index> lengths;
};

/// Calls f(options) for edges of every kind.
template <class F>
void for_each_fsat_options(Index tokens, const F& f) {
  using fovea::EdgeSource;
  using fovea::FsatOptions;
  f(FsatOptions{.max_length = tokens});
  f(FsatOptions{.max_length = tokens + 9, .variance = 3.0, .edges = EdgeSource::both, .seed = 5});
  f(FsatOptions{.max_length = tokens,
                .confidence = fovea::Confidence::relative,
                .edges = EdgeSource::random,
                .seed = 6,
                .truncate_gradient = false});
}

}  // namespace fovea_test
