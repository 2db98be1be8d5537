// SPDX-License-Identifier: MIT
/// \file
/// Tensors of 16 bits, of both formats, and of double.
#include <fovea/attention/full.hpp>
#include <fovea/core/eigen.hpp>

#include "problem.hpp"

namespace {
namespace half_family {

using namespace problem;

template <class T>
void attend(fovea::ThreadPool& pool, Digest& digest) {
  const Numbers<T> q(kQ, 1), k(kKey, 2), v(kKey, 3);
  Numbers<T> out(kQ);
  fovea::FullAttention{{.causal = true}}.forward({q, k, v}, out.to(), pool);
  digest.add(out);
}

}  // namespace half_family
}  // namespace

hostile::Result HOSTILE_UNIT(half)(int level, int threads);
hostile::Result HOSTILE_UNIT(half)(int level, int threads) {
  using namespace half_family;
  Digest digest(level);
  fovea::ThreadPool pool(threads);
  attend<Eigen::half>(pool, digest);
  attend<Eigen::bfloat16>(pool, digest);
  attend<double>(pool, digest);
  return digest.result();
}
