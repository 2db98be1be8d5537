// SPDX-License-Identifier: MIT
/// \file
/// Attention over lists of keys: given ones, those of Smart Bird, those of FSAT.
#include <fovea/attention/fsat.hpp>
#include <fovea/attention/indexed.hpp>
#include <fovea/attention/smart_bird.hpp>

#include "problem.hpp"

namespace {
namespace indexed_family {

using namespace problem;

/// One token after nine, with Smart Bird's decoder.
void decode(const fovea::SmartBirdAttention& op, fovea::ThreadPool& pool, Digest& digest) {
  auto decoder = op.decoder<float>({.batch = 2,
                                    .query_heads = 4,
                                    .key_heads = 2,
                                    .width = 24,
                                    .value_width = 24,
                                    .sketch_width = 4});
  for (const Index rows : {Index{9}, Index{1}}) {
    const Numbers<float> q({2, 4, rows, 24}, 5), k({2, 2, rows, 24}, 6), v({2, 2, rows, 24}, 7);
    const Numbers<float> sketch_q({2, 1, rows, 4}, 8), sketch_k({2, 1, rows, 4}, 9);
    Numbers<float> out({2, 4, rows, 24});
    fovea::SmartBirdInputs<float> tokens{q, k, v};
    tokens.sketch_q = sketch_q;
    tokens.sketch_k = sketch_k;
    decoder.step(tokens, out.to(), pool);
    digest.add(out);
  }
}

}  // namespace indexed_family
}  // namespace

hostile::Result HOSTILE_UNIT(indexed)(int level, int threads);
hostile::Result HOSTILE_UNIT(indexed)(int level, int threads) {
  using namespace indexed_family;
  Digest digest(level);
  fovea::ThreadPool pool(threads);
  const Numbers<float> q(kQ, 1), k(kKey, 2), v(kKey, 3);
  fovea::IndexTensor lists({2, 4, 150, 7});
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 4; ++h) {
      for (Index i = 0; i < 150; ++i) {
        for (Index n = 0; n < 7; ++n) lists.view()(b, h, i, n) = (i * (h + 3) + 13 * n) % 150;
      }
    }
  }
  fovea::sort_indices(lists);
  train(fovea::IndexedAttention{}, {.q = q, .k = k, .v = v, .indices = lists.view()}, pool, digest);

  const Numbers<float> sketch_q({2, 1, 150, 4}, 12), sketch_k({2, 1, 150, 4}, 13);
  const fovea::SmartBirdAttention smart_bird{{.keys_per_row = 7, .causal = true}};
  fovea::IndexTensor chosen({2, 4, 150, 7});
  train(smart_bird, {.q = q, .k = k, .v = v, .sketch_q = sketch_q, .sketch_k = sketch_k}, pool,
        digest, {.indices = chosen.view()});
  decode(smart_bird, pool, digest);

  Numbers<float> dominant({2, 4, 150, 3}, 14);
  for (float& x : dominant.values()) x = (x + 1) * 70;
  train(fovea::FsatAttention{{.max_length = 150}},
        {.q = q, .k = k, .v = v, .dominant = dominant.to()}, pool, digest);
  return digest.result();
}
