// SPDX-License-Identifier: MIT
/// \file
/// Tensors of 16 bits, Eigen::bfloat16 or Eigen::half: half the memory, the arithmetic of float.
#include <cstdio>
#include <fovea/fovea.hpp>

int main() {
  using Tensor = fovea::Tensor4<Eigen::bfloat16>;
  const auto random = [](Eigen::Index heads) -> Tensor {
    fovea::Tensor4<float> x(1, heads, 600, 64);  // [B, H, N, D]
    x.setRandom();
    return x.cast<Eigen::bfloat16>();
  };
  const Tensor q = random(8), k = random(2), v = random(2);
  const fovea::FullAttention op{{.causal = true}};
  fovea::ThreadPool pool;

  Tensor out(1, 8, 600, 64);
  Eigen::Tensor<float, 3, Eigen::RowMajor> lse(1, 8, 600);  // everything but the tensors is float
  op.forward({q, k, v}, out, {fovea::row_view(lse)}, pool);

  // The same numbers as floats give the same result, except for its rounding to bfloat16.
  const fovea::Tensor4<float> q32 = q.cast<float>(), k32 = k.cast<float>(), v32 = v.cast<float>();
  const fovea::Tensor4<float> out32 = fovea::attend(op, q32, k32, v32, pool);
  bool same = true;
  for (Eigen::Index i = 0; i < out.size(); ++i) {
    same = same && out.data()[i] == Eigen::bfloat16(out32.data()[i]);
  }
  std::printf("%zu bytes per number, equals the rounded float result: %s\n", sizeof(*out.data()),
              same ? "yes" : "no");
  return same ? 0 : 1;
}
