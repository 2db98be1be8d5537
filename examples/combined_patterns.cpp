// SPDX-License-Identifier: MIT
/// \file
/// Patterns combined into one operator, and their cost: heads alternate between a window with
/// global tokens and a dilated window.
#include <cstdio>
#include <cstdlib>
#include <fovea/fovea.hpp>

int main() {
  constexpr fovea::Index n = 2048;
  const auto tokens = fovea::GlobalTokens::at({0, 1, 500});
  const auto near_and_global = fovea::unite(fovea::Window{64, 64}, tokens);
  const fovea::DilatedWindow dilated{.left = 32, .right = 32, .dilation = 4};
  const fovea::SparseAttention op{{.patterns = {near_and_global, dilated}}};  // heads take turns

  Eigen::Tensor<float, 4, Eigen::RowMajor> q(1, 2, n, 32), k(1, 2, n, 32), v(1, 2, n, 32);
  q.setRandom();
  k.setRandom();
  v.setRandom();
  const auto out = fovea::attend(op, q, k, v);

  for (fovea::Index head = 0; head < 2; ++head) {
    const fovea::SequenceShape shape{n, n, 0};
    const fovea::PlanStats stats = fovea::plan_stats(op.pattern(head, shape).plan(0, shape), shape);
    std::printf("head %td: %td of %.0f pairs visible, %.2f of the computed ones\n", head,
                stats.attended_pairs, stats.all_pairs, stats.useful());
    if (stats.attended_pairs != op.attended_pairs({.queries = n, .keys = n}, head)) {
      return EXIT_FAILURE;
    }
  }

  // Lists of blocks, here of 1024 positions: the first block of queries sees the first block of
  // keys, the second one sees both.
  const fovea::BlockRows rows{.offsets = {0, 1, 3}, .columns = {0, 0, 1}};
  const fovea::BlockSparseAttention listed{{.block = 1024, .layouts = {rows}}};
  if (listed.attended_pairs({.queries = n, .keys = n}, 0) != 3 * 1024 * 1024) return EXIT_FAILURE;
  const auto by_blocks = fovea::attend(listed, q, k, v);
  std::printf("in blocks: %td rows\n", by_blocks.dimension(2));

  std::printf("row 1000 of head 0 begins with %.4f\n", static_cast<double>(out(0, 0, 1000, 0)));
  return EXIT_SUCCESS;
}
