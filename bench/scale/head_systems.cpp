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

constexpr Index kChunk = 64;  // of Reformer, and the block of Sinkhorn
constexpr Index kRounds = 4;

/// Numbers of a row and head that are turned around.
struct Turned {
  Index read;
  Index written;
};

/// The bytes of a row of the heads of each rank.
std::function<double(int)> bytes_of_heads(Index heads, int ranks, double width) {
  return [=](int rank) {
    return float_bytes(static_cast<double>(share_of(heads, rank, ranks)) * width);
  };
}

void add_turned(Sent& sent, const RowLayout& layout, Index heads, const Turned& turned) {
  const auto bytes = [&](Index width) {
    return bytes_of_heads(heads, layout.ranks(), static_cast<double>(width));
  };
  sent.turned(layout, true, bytes(turned.read)).turned(layout, false, bytes(turned.written));
}

/// \param turned by forward and backward passes
/// \param sorting whether blocks of rows have logits for each block, which are turned around, too
CostsOf by_heads(Index heads, double pairs_of_row, std::array<Turned, 2> turned, bool sorting) {
  return [=](bool is_backward) {
    const Turned& of_rows = turned[is_backward ? 1 : 0];
    Costs costs;
    costs.pairs = [=](double n) { return n * pairs_of_row; };
    costs.sent = [=](const RowLayout& layout) {
      Sent sent(layout);
      add_turned(sent, layout, heads, of_rows);
      if (!sorting) return sent;
      const RowLayout blocks = fovea::distributed::blocks_of(layout, kChunk);
      add_turned(sent, blocks, heads, {blocks.rows(), is_backward ? blocks.rows() : 0});
      return sent;
    };
    costs.messages = messages_to_all(is_backward ? 8 : 4);
    costs.most_ranks = static_cast<double>(heads);
    return costs;
  };
}

System reformer(Look look, Index heads, bool saves) {
  using Op = fovea::ReformerAttention;
  const auto inputs = [](Tensors& t) { return fovea::ReformerInputs<float>{t.q(), t.v()}; };
  const auto saved = [saves](Tensors& t) {
    fovea::ReformerSaved<float> made;
    if (saves) made = {t.lse(), t.made("lse of rounds", t.of_rows(kRounds))};
    return made;
  };
  const auto grads = [](Tensors& t) { return fovea::ReformerGrads<float>{t.d_q(), t.d_v()}; };
  const Turned forward = {2 * kWidth, kWidth + (saves ? 1 + kRounds : 0)};
  const Turned backward = {4 * kWidth + kRounds, 2 * kWidth};
  return system_of(std::move(look), RowLayout::contiguous,
                   Call(same(Op({.chunk = kChunk, .rounds = kRounds})), inputs, saved, grads),
                   by_heads(heads, 2 * kChunk * kRounds, {forward, backward}, false), kChunk);
}

System sinkhorn(Look look, Index heads, bool saves) {
  using Op = fovea::SinkhornAttention;
  const auto logits = [](const Tensors& t) {
    return Shape{1, t.heads(), t.blocks(kChunk), t.sequence() / kChunk};
  };
  const auto inputs = [=](Tensors& t) {
    auto in = read_qkv<Op>(t);
    in.sorting = t.given("sorting", logits(t));
    return in;
  };
  const auto grads = [=](Tensors& t) {
    auto made = qkv_grads<Op>(t);
    made.sorting = t.made("d_sorting", logits(t));
    return made;
  };
  const Turned forward = {3 * kWidth, kWidth + (saves ? 1 : 0)};
  const Turned backward = {5 * kWidth + 1, 3 * kWidth};
  return system_of(std::move(look), RowLayout::contiguous,
                   Call(same(Op({.block = kChunk})), inputs, saves_lse<Op>(saves), grads),
                   by_heads(heads, 2 * kChunk, {forward, backward}, true), kChunk);
}

}  // namespace

Systems head_systems(Index heads, bool saves) {
  return {
      reformer({"Reformer 64 x 4", "reformer", Family::heads}, heads, saves),
      sinkhorn({"Sinkhorn 64", "sinkhorn", Family::heads}, heads, saves),
  };
}

}  // namespace bench
