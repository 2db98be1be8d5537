// SPDX-License-Identifier: MIT
/// \file
/// The operators that others are compared with, forward and backward.
#include <fovea/attention/factorised_synthesizer.hpp>
#include <fovea/attention/linformer.hpp>
#include <fovea/attention/luna.hpp>
#include <fovea/attention/nystroem.hpp>
#include <fovea/attention/performer.hpp>
#include <fovea/attention/reformer.hpp>
#include <fovea/attention/sinkhorn.hpp>

#include "problem.hpp"

namespace {
namespace baselines_family {

using namespace problem;

/// Operators without their own keys.
void train_others(fovea::ThreadPool& pool, Digest& digest) {
  const Numbers<float> qk(kQ, 1), v(kQ, 3), d_out(kQ, 4);
  Numbers<float> out(kQ), lse(kRow), d_qk(kQ), d_v(kQ);
  const fovea::ReformerAttention reformer{{.chunk = 15, .rounds = 2, .buckets = 10}};
  reformer.forward({.qk = qk, .v = v}, out.to(), {.lse = lse.to()}, pool);
  reformer.backward({.qk = qk, .v = v}, out.to(), {.lse = lse.to()}, d_out,
                    {.qk = d_qk.to(), .v = d_v.to()}, pool);
  digest.add(out, lse, d_qk, d_v);

  const fovea::FactorisedSynthesizerAttention synthesizer{{.causal = true}};
  const Numbers<float> r1({1, 4, 150, 5}, 15), r2({1, 4, 150, 5}, 16);
  Numbers<float> d_r1({1, 4, 150, 5});
  synthesizer.forward({.r1 = r1, .r2 = r2, .v = v}, out.to(), {.lse = lse.to()}, pool);
  synthesizer.backward({.r1 = r1, .r2 = r2, .v = v}, out.to(), {.lse = lse.to()}, d_out,
                       {.r1 = d_r1.to(), .v = d_v.to()}, pool);
  digest.add(out, lse, d_r1, d_v);
}

}  // namespace baselines_family
}  // namespace

hostile::Result HOSTILE_UNIT(baselines)(int level, int threads);
hostile::Result HOSTILE_UNIT(baselines)(int level, int threads) {
  using namespace baselines_family;
  Digest digest(level);
  fovea::ThreadPool pool(threads);
  const Numbers<float> q(kQ, 1), k(kKey, 2), v(kKey, 3);
  const Numbers<float> sorting({2, 2, 10, 10}, 17), projection({1, 1, 20, 24}, 18);
  const Numbers<float> e({1, 1, 9, 150}, 19), f({1, 1, 9, 150}, 20);
  train(fovea::SinkhornAttention{{.block = 15}}, {.q = q, .k = k, .v = v, .sorting = sorting}, pool,
        digest);
  train(fovea::PerformerAttention{{.causal = true}},
        {.q = q, .k = k, .v = v, .projection = projection}, pool, digest);
  train(fovea::LinformerAttention{},
        {.q = q, .k = k, .v = v, .key_projection = e, .value_projection = f}, pool, digest);
  train(fovea::NystroemAttention{{.landmarks = 10}}, {.q = q, .k = k, .v = v}, pool, digest);
  train(fovea::LunaPack{}, {.q = q, .k = k, .v = v}, pool, digest);
  train_others(pool, digest);
  return digest.result();
}
