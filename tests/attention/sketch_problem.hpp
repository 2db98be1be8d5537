// SPDX-License-Identifier: MIT
/// \file
/// Tensors of one call of Smart Bird attention, for its tests.
#pragma once

#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "support/fill.hpp"
#include "support/oracle/sketch.hpp"
#include "support/tensor.hpp"

namespace fovea_test {

using bench::AllInputs;
using bench::AllSaved;
using fovea::IndexTensor;
using fovea::SmartBirdAttention;
using fovea::SmartBirdOptions;

/// Sizes of a call.
struct BirdSizes {
  Index batch = 1;
  Index heads = 3;
  Index key_heads = 3;
  Index queries = 50;
  Index keys = 50;
  Index width = 16;
  Index value_width = 12;
  Index sketch_width = 4;
};

template <class T>
struct BirdProblem {
  explicit BirdProblem(const BirdSizes& s, double deviation = 1, std::uint64_t seed = 1)
      : sizes(s),
        q({s.batch, s.heads, s.queries, s.width}),
        k({s.batch, s.key_heads, s.keys, s.width}),
        v({s.batch, s.key_heads, s.keys, s.value_width}),
        sketch_q({s.batch, 1, s.queries, s.sketch_width}),
        sketch_k({s.batch, 1, s.keys, s.sketch_width}) {
    q.fill(gaussian(seed));
    k.fill(gaussian(seed + 100));
    v.fill(gaussian(seed + 200));
    sketch_q.fill(gaussian(seed + 300, deviation));
    sketch_k.fill(gaussian(seed + 400));
  }

  AllInputs<T> inputs() const {
    AllInputs<T> in{q.view(), k.view(), v.view(), key_lengths, cu_q, cu_k};
    in.sketch_q = sketch_q.view();
    in.sketch_k = sketch_k.view();
    return in;
  }
  Shape out_shape() const { return {sizes.batch, sizes.heads, sizes.queries, sizes.value_width}; }
  Shape row_shape() const { return {sizes.batch, sizes.heads, sizes.queries, 1}; }

  BirdSizes sizes;
  Tensor<T> q, k, v, sketch_q, sketch_k;
  std::vector<Index> key_lengths, cu_q, cu_k;
};

/// The keys of one row of a list.
inline std::vector<Index> keys_of(const View<const Index>& indices, Index b, Index h, Index i) {
  std::vector<Index> keys;
  for (Index n = 0; n < indices.width(); ++n) {
    if (indices(b, h, i, n) >= 0) keys.push_back(indices(b, h, i, n));
  }
  return keys;
}

inline std::vector<Index> values_of(const View<const Index>& x) {
  std::vector<Index> all;
  for_each_index(x.shape(),
                 [&](Index b, Index h, Index n, Index d) { all.push_back(x(b, h, n, d)); });
  return all;
}

}  // namespace fovea_test
