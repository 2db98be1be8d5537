// SPDX-License-Identifier: MIT
/// \file
/// Rotary positions without a layer: queries and keys are rotated in place, by a position for each
/// token or by tables, so that attention depends only on the distances of positions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fovea/fovea.hpp>
#include <vector>

/// The attention of rotated copies of q and k.
fovea::Tensor4<float> attended(fovea::Tensor4<float> q, fovea::Tensor4<float> k,
                               const fovea::Tensor4<float>& v,
                               const std::vector<std::int32_t>& position_ids) {
  const fovea::Rotary<float> rotary({.base = 10000}, q.dimension(3));
  rotary.turn(q, {.positions = position_ids});  // [B, L] or [L], integers of 32 or 64 bits
  rotary.turn(k, {.positions = position_ids});
  return fovea::attend(fovea::FullAttention{{.causal = true}}, q, k, v);
}

int main() {
  const fovea::Index heads = 4, n = 100, d = 32;
  fovea::Tensor4<float> q(1, heads, n, d), k(1, 2, n, d), v(1, 2, n, d);
  q.setRandom();
  k.setRandom();
  v.setRandom();
  std::vector<std::int32_t> near, far;
  for (std::int32_t i = 0; i < n; ++i) {
    near.push_back(3 * i);
    far.push_back(3 * i + 1000);
  }
  const fovea::Tensor4<float> out = attended(q, k, v, near);
  const fovea::Tensor4<float> moved = attended(q, k, v, far);
  const fovea::Tensor4<float> still = attended(q, k, v, std::vector<std::int32_t>(n));
  const auto difference = [](const fovea::Tensor4<float>& a, const fovea::Tensor4<float>& b) {
    float largest = 0;
    for (fovea::Index i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(a.data()[i] - b.data()[i]));
    }
    return largest;
  };

  // Custom tables: row p belongs to position p.
  Eigen::MatrixXf cosines(300, d / 2), sines(300, d / 2);
  for (fovea::Index p = 0; p < 300; ++p) {
    for (fovea::Index i = 0; i < d / 2; ++i) {
      const double angle = double(p) * std::pow(10000, -2 * double(i) / double(d));
      cosines(p, i) = float(std::cos(angle));
      sines(p, i) = float(std::sin(angle));
    }
  }
  fovea::Tensor4<float> turned = q, by_tables = q;
  const fovea::Rotary<float> rotary({}, d);
  rotary.turn(turned, {.positions = near});
  rotary.turn(by_tables, {.positions = near, .cosines = cosines, .sines = sines});
  const float apart = difference(turned, by_tables);
  // The backward rotation: of a gradient, or of rotated heads.
  rotary.turn(turned, {.positions = near, .backward = true});

  std::printf("rows are the same 1000 positions later: %s; and differ without positions: %s\n",
              difference(out, moved) < 1e-4F ? "yes" : "no",
              difference(out, still) > 1e-2F ? "yes" : "no");
  std::printf("equal with tables: %s; inverse rotation: %s\n", apart < 1e-6F ? "yes" : "no",
              difference(turned, q) < 1e-6F ? "yes" : "no");
}
