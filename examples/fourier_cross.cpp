// SPDX-License-Identifier: MIT
/// \file
/// The Fourier cross of two sequences, and attention along the edges that dominant indices predict:
/// FSAT without its weights. The cross is compared with its definition, the attention with a sum
/// over one row's keys.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fovea/fovea.hpp>
#include <fovea/spectral.hpp>

int main() {
  const fovea::Index heads = 2, n = 500, d = 16, channels = heads * d, m = 4;
  fovea::Tensor4<float> f1(1, 1, n, channels), f2(f1), c(f1);  // [B, 1, L, C]
  f1.setRandom();
  f2.setRandom();
  fovea::Tensor4<float> q(1, heads, n, d), out(q), dominant(1, heads, n, m);
  q.setRandom();
  dominant.setRandom();  // in [0, 1)
  dominant = dominant * float(n);
  fovea::ThreadPool pool;

  const fovea::HiddenStateCross cross;
  cross.forward({f1, f2}, c, pool);

  const auto k = fovea::as_heads(fovea::View<const float>(c), 0, heads, d);  // [B, H, L, D]
  const fovea::FsatAttention op{{.max_length = n}};
  op.forward({.q = q, .k = k, .v = k, .dominant = dominant}, out, pool);

  double largest = 0, error = 0;
  for (fovea::Index i = 0; i < n; ++i) {
    double sum = -double(f1(0, 0, i, 3)) * double(f2(0, 0, i, 3));
    for (fovea::Index a = 0; a < n && i + 1 < n; ++a) {
      for (const fovea::Index b : {2 * i - a, 2 * i + 1 - a}) {
        if (b >= 0 && b < n) sum += double(f1(0, 0, a, 3)) * double(f2(0, 0, b, 3));
      }
    }
    if (i + 1 == n) sum = 0;
    largest = std::max(largest, std::abs(sum));
    error = std::max(error, std::abs(sum - double(c(0, 0, i, 3))));
  }
  bool same_rows = true;
  fovea::Index without = 0;
  for (fovea::Index i = 0; i < n; ++i) {
    bool has_key = false, is_zero = true;
    for (fovea::Index j = 0; j < n; ++j) {
      for (fovea::Index s = 0; s < m; ++s) {
        has_key = has_key || fovea::Index(dominant(0, 1, j, s)) == i;
      }
    }
    for (fovea::Index x = 0; x < d; ++x) is_zero = is_zero && out(0, 1, i, x) == 0;
    without += has_key ? 0 : 1;
    same_rows = same_rows && has_key != is_zero;
  }
  std::printf("the cross agrees with its definition: %s\n", error < 1e-5 * largest ? "yes" : "no");
  std::printf("%td of %td rows are not a dominant index, and +0: %s\n", without, n,
              same_rows ? "yes" : "no");
}
