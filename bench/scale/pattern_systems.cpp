// SPDX-License-Identifier: MIT
/// \file
/// Softmax attention over patterns, as fovea_scale measures it.
#include <utility>

#include "bench/scale/calls.hpp"
#include "fovea/attention/big_bird.hpp"
#include "fovea/attention/full.hpp"
#include "fovea/attention/local.hpp"
#include "fovea/attention/strided.hpp"
#include "fovea/distributed/softmax_backward.hpp"
#include "fovea/distributed/softmax_forward.hpp"

namespace bench {
namespace {

constexpr Index kBand = 128;
constexpr Index kStride = 128;

/// The rows that a rank needs, as one range.
using Need = std::function<Range(const RowLayout& layout, int rank)>;

/// Which keys a rank's rows see, and which rows see its keys.
struct Needs {
  Need keys;
  Need queries;
};

Range every(const RowLayout& layout, int /*rank*/) { return {0, layout.rows()}; }
/// From the first row on to the last one of the rank, and from its first one on.
Range up_to(const RowLayout& layout, int rank) { return {0, layout.of(rank).back().end}; }
Range from(const RowLayout& layout, int rank) {
  return {layout.of(rank).front().begin, layout.rows()};
}
Range margin(const RowLayout& layout, int rank) {
  return {layout.of(rank).front().begin - kBand, layout.of(rank).back().end + kBand};
}

/// Bytes of a row: keys and values; and q, out, d_out, lse and its low part.
double key_bytes(Index heads) { return static_cast<double>(heads * 2 * kWidth) * sizeof(float); }
double query_bytes(Index heads) {
  return static_cast<double>(heads * (3 * kWidth + 2)) * sizeof(float);
}

/// \param peers peers(ranks) is the number of ranks that a rank sends rows to
Costs costs_of(Index heads, bool is_backward, std::function<double(double)> pairs,
               const Needs& needs, double (*peers)(int)) {
  Costs costs;
  costs.pairs = std::move(pairs);
  costs.bytes = [=](const RowLayout& layout) {
    return most_of_ranks(layout.ranks(), [&](int rank) {
      const auto rows = [&](const Need& need) {
        return static_cast<double>(
            rows_sent(layout, rank, [&](int to) { return need(layout, to); }));
      };
      const double keys = rows(needs.keys) * key_bytes(heads);
      return is_backward ? keys + rows(needs.queries) * query_bytes(heads) : keys;
    });
  };
  // Each tensor and head is a message of its own.
  const double tensors = static_cast<double>(heads) * (is_backward ? 7 : 2);
  costs.messages = [=](int ranks) { return tensors * peers(ranks) + agreements(ranks); };
  return costs;
}

/// The same where rows see those of all ranks.
Costs spread_costs_of(Index heads, bool is_backward, std::function<double(double)> pairs,
                      const Needs& needs, double (*peers)(int)) {
  Costs costs = costs_of(heads, is_backward, std::move(pairs), needs, peers);
  if (is_backward) costs.shared_work = kSharedBackward;
  return costs;
}

/// Random blocks: each block of keys is drawn three times by each head on average, and belongs to
/// the global rows, of rank 0, which see all keys; all ranks see the keys of these.
Costs big_bird_costs(Index heads, bool is_backward) {
  Costs costs;
  costs.basis = Basis::mean;
  costs.pairs = [](double n) { return 64 * 8 * n; };
  const double bytes = key_bytes(heads) + (is_backward ? query_bytes(heads) : 0);
  costs.bytes = [=](const RowLayout& layout) {
    const double others = layout.ranks() - 1;
    const auto own = static_cast<double>(layout.count(0));
    const double drawn = 3 * static_cast<double>(heads);
    // Of each block, the ranks that are hit by so many draws; and of rank 0 the global blocks.
    const double random = own * others * -std::expm1(drawn * std::log1p(-1 / (others + 1)));
    const double rank_0 = random + std::min(own, 128.0) * others;
    return bytes * std::min(own * others, others > 0 ? std::max(random + own, rank_0) : 0);
  };
  costs.messages = [=](int ranks) {
    return static_cast<double>(heads) * (is_backward ? 7 : 2) * (ranks - 1) + agreements(ranks);
  };
  if (is_backward) costs.shared_work = kSharedBackward;
  return costs;
}

/// \param costs costs(is_backward)
template <class Op, class CostsOf>
System system_of(std::string name, std::string style, const Op& op, RowLayout (*layout)(Index, int),
                 bool saves, const CostsOf& costs) {
  const auto op_of = [op](Index) { return op; };
  const auto inputs = [](Tensors& t) {
    return fovea::SoftmaxInputs<float>{.q = t.q(), .k = t.k(), .v = t.v()};
  };
  const auto saved = [saves](Tensors& t) {
    return fovea::SoftmaxSaved<float>{saves ? t.lse() : fovea::View<float>()};
  };
  const auto grads = [](Tensors& t) {
    return fovea::SoftmaxGrads<float>{t.d_q(), t.d_k(), t.d_v()};
  };
  return {std::move(name),
          std::move(style),
          false,
          layout,
          forward_of(op_of, inputs, saved, costs(false)),
          backward_of(op_of, inputs, saved, grads, costs(true))};
}

}  // namespace

std::vector<System> pattern_systems(Index heads, bool saves) {
  const auto costs = [=](std::function<double(double)> pairs, Needs needs, double (*peers)(int)) {
    return
        [=](bool is_backward) { return spread_costs_of(heads, is_backward, pairs, needs, peers); };
  };
  const auto of_window = [=](bool is_backward) {
    const auto neighbours = [](int ranks) { return std::min(ranks - 1.0, 2.0); };
    return costs_of(
        heads, is_backward, [](double n) { return 257 * n; }, {margin, margin}, neighbours);
  };
  const auto all = [](int ranks) { return ranks - 1.0; };
  std::vector<System> systems = {
      system_of("full, causal", "full", fovea::FullAttention{{.causal = true}}, RowLayout::zigzag,
                saves, costs([](double n) { return n * n / 2; }, {up_to, from}, all)),
      system_of("full", "full", fovea::FullAttention{}, RowLayout::contiguous, saves,
                costs([](double n) { return n * n; }, {every, every}, all)),
      system_of("window 128 + 128", "local", fovea::LocalAttention{{.left = kBand, .right = kBand}},
                RowLayout::contiguous, saves, of_window),
      // Where a piece of the layout has a stride of rows, all rows before it are seen from there.
      system_of(
          "strided 128", "strided",
          fovea::StridedAttention{{.stride = kStride, .heads = fovea::HeadAssignment::merged}},
          RowLayout::zigzag, saves,
          costs([](double n) { return n * (kStride + n / kStride / 2); }, {up_to, from}, all)),
      system_of("BigBird", "bigbird", fovea::BigBirdAttention{}, RowLayout::contiguous, saves,
                [=](bool is_backward) { return big_bird_costs(heads, is_backward); })};
  systems[1].dashed = true;
  return systems;
}

}  // namespace bench
