// SPDX-License-Identifier: MIT
/// \file
/// Reformer and Sinkhorn attention, as fovea_scale measures them: ranks compute them by heads.
#include <array>
#include <utility>

#include "bench/scale/calls.hpp"
#include "fovea/attention/reformer.hpp"
#include "fovea/attention/sinkhorn.hpp"
#include "fovea/distributed/reformer.hpp"
#include "fovea/distributed/sinkhorn.hpp"

namespace bench {
namespace {

/// Numbers of a row and head that are turned around.
struct Turned {
  Index read;
  Index written;
};

void add_turned(Sent& sent, const RowLayout& layout, Index heads, const Turned& turned) {
  sent.turned(layout, true, heads, turned.read).turned(layout, false, heads, turned.written);
}

/// \param turned by forward and backward passes
/// \param sorting whether blocks of rows have logits for each block, which are turned around, too
CostsOf by_heads(Index heads, double pairs_of_row, std::array<Turned, 2> turned, bool sorting) {
  return [=](bool is_backward) {
    const Turned& of_rows = turned[is_backward ? 1 : 0];
    Costs costs;
    costs.pairs = [=](double n) { return n * pairs_of_row; };
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      add_turned(sent, layout, heads, of_rows);
      if (!sorting) return;
      const RowLayout blocks = fovea::distributed::blocks_of(layout, kChunk);
      add_turned(sent, blocks, heads, {blocks.rows(), is_backward ? blocks.rows() : 0});
    };
    costs.messages = messages_to_all(is_backward ? 8 : 4);
    costs.most_ranks = static_cast<double>(heads);
    return costs;
  };
}

}  // namespace

Systems head_systems(Index heads, bool saves) {
  using fovea::ReformerAttention, fovea::SinkhornAttention;
  const ReformerAttention reformer({.chunk = kChunk, .rounds = kRounds});
  const SinkhornAttention sinkhorn({.block = kChunk});
  const std::array<Turned, 2> of_reformer = {
      {{2 * kWidth, kWidth + (saves ? 1 + kRounds : 0)}, {4 * kWidth + kRounds, 2 * kWidth}}};
  const std::array<Turned, 2> of_sinkhorn = {
      {{3 * kWidth, kWidth + (saves ? 1 : 0)}, {5 * kWidth + 1, 3 * kWidth}}};
  return {
      // Each round has its own projection, which is drawn.
      system_of({"Reformer 64 x 4", "reformer", Family::heads}, RowLayout::contiguous, reformer,
                {saves, {}, {"projection"}},
                by_heads(heads, 2 * kChunk * kRounds, of_reformer, false), kChunk),
      system_of({"Sinkhorn 64", "sinkhorn", Family::heads}, RowLayout::contiguous, sinkhorn,
                {saves}, by_heads(heads, 2 * kChunk, of_sinkhorn, true), kChunk),
  };
}

}  // namespace bench
