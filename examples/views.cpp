// SPDX-License-Identifier: MIT
/// \file
/// Tensors that are not stored as [B, H, N, D]: a pointer, the shape [B, H, N, D] and the strides
/// of the data. No data is moved.
#include <array>
#include <cstdio>
#include <cstring>
#include <fovea/fovea.hpp>

int main() {
  constexpr fovea::Index B = 2, N = 40, H = 4, D = 16;
  using Tensor = fovea::Tensor4<float>;
  Tensor q_data(B, N, H, D), k_data(B, N, H, D), v_data(B, N, H, D), out_data(B, N, H, D);
  q_data.setRandom();
  k_data.setRandom();
  v_data.setRandom();
  const fovea::FullAttention op{{.causal = true}};

  // Stored as [B, N, H, D]:
  const auto by_tokens = [&](auto* data) {
    return fovea::View(data, {B, H, N, D}, {N * H * D, D, H * D, 1});
  };
  op.forward({by_tokens(q_data.data()), by_tokens(k_data.data()), by_tokens(v_data.data())},
             by_tokens(out_data.data()));

  Tensor rows(1, N, H, D);
  // One sequence stored as [N, H * D], heads side by side; here the first of the batch:
  const auto by_rows = [&](auto* data) {
    return fovea::View(data, {1, H, N, D}, {N * H * D, D, H * D, 1});
  };
  op.forward({by_rows(q_data.data()), by_rows(k_data.data()), by_rows(v_data.data())},
             by_rows(rows.data()));

  // The bits are those of dense tensors [B, H, N, D].
  const std::array<int, 4> order = {0, 2, 1, 3};
  const Tensor q = q_data.shuffle(order), k = k_data.shuffle(order), v = v_data.shuffle(order);
  const Tensor expected = fovea::attend(op, q, k, v).shuffle(order);
  const auto bytes = [](const Tensor& x) { return sizeof(float) * std::size_t(x.size()); };
  const bool same = std::memcmp(out_data.data(), expected.data(), bytes(expected)) == 0 &&
                    std::memcmp(rows.data(), expected.data(), bytes(rows)) == 0;
  std::printf("same bits as a dense [B, H, N, D]: %s\n", same ? "yes" : "no");
  return same ? 0 : 1;
}
