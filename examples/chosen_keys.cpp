// SPDX-License-Identifier: MIT
/// \file
/// Attention over keys that depend on the data: chosen by a sketch (Smart Bird), or by a custom
/// search.
#include <algorithm>
#include <cstdio>
#include <fovea/fovea.hpp>
#include <numeric>
#include <vector>

using Tensor = fovea::Tensor4<float>;

/// A custom search: the 8 keys nearest to each query in their first coordinate, unsorted.
fovea::IndexTensor nearest(const Tensor& q, const Tensor& k) {
  const fovea::Index heads = q.dimension(1), n = q.dimension(2);
  fovea::IndexTensor found({1, heads, n, 8});
  std::vector<fovea::Index> order(static_cast<std::size_t>(n));
  for (fovea::Index h = 0; h < heads; ++h) {
    for (fovea::Index i = 0; i < n; ++i) {
      std::iota(order.begin(), order.end(), fovea::Index{0});
      std::partial_sort(order.begin(), order.begin() + 8, order.end(), [&](auto a, auto b) {
        return std::abs(k(0, h, a, 0) - q(0, h, i, 0)) < std::abs(k(0, h, b, 0) - q(0, h, i, 0));
      });
      for (fovea::Index c = 0; c < 8; ++c) {
        found.view()(0, h, i, c) = order[static_cast<std::size_t>(c)];
      }
    }
  }
  return found;
}

int main() {
  const fovea::Index heads = 4, n = 500, d = 32;
  Tensor q(1, heads, n, d), k(1, heads, n, d), v(1, heads, n, d);  // [B, H, N, D]
  Tensor sketch_q(1, 1, n, 4), sketch_k(1, 1, n, 4);  // one head of 4 columns, for all heads
  for (Tensor* x : {&q, &k, &v, &sketch_q, &sketch_k}) x->setRandom();
  fovea::ThreadPool pool;
  Tensor out(1, heads, n, d), again(1, heads, n, d), step(1, heads, n, d);

  const fovea::SmartBirdAttention op{{.keys_per_row = 20, .causal = true}};
  fovea::SmartBirdInputs<float> inputs{q, k, v};
  inputs.sketch_q = sketch_q;
  inputs.sketch_k = sketch_k;
  op.forward(inputs, out, pool);

  // The same in two calls: the choice of keys, and attention over any lists of keys.
  const fovea::IndexTensor chosen = op.select({sketch_q, sketch_k}, heads, pool);
  fovea::IndexedInputs<float> listed{q, k, v};
  listed.indices = chosen;
  fovea::IndexedAttention{}.forward(listed, again, pool);

  auto decoder = op.decoder<float>(
      {.query_heads = heads, .key_heads = heads, .width = d, .value_width = d, .sketch_width = 4});
  decoder.step(inputs, step, pool);

  fovea::IndexTensor found = nearest(q, k);
  fovea::sort_indices(found);  // ascending, -1 behind the last key
  listed.indices = found;
  Tensor own(1, heads, n, d);
  fovea::IndexedAttention{}.forward(listed, own, pool);

  const auto same = [](const Tensor& a, const Tensor& b) {
    return std::equal(a.data(), a.data() + a.size(), b.data());
  };
  const bool agree = same(out, again) && same(out, step) && !same(out, own);
  std::printf("row 300 of head 2 attends to %td of 301 keys, the first at %td\n", chosen.shape()[3],
              chosen(0, 2, 300, 0));
  std::printf("one call, two calls and the decoder agree: %s\n", agree ? "yes" : "no");
  return agree ? 0 : 1;
}
