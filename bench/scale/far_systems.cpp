// SPDX-License-Identifier: MIT
/// \file
/// Linear and FMM attention, as fovea_scale measures them.
#include <utility>

#include "bench/scale/calls.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/distributed/linear_backward.hpp"
#include "fovea/distributed/linear_forward.hpp"

namespace bench {
namespace {

using fovea::distributed::SegmentOwners;

constexpr Index kBand = 128;
constexpr fovea::LinearShape kMap = {1, kWidth, kWidth};

double float_bytes(Index count) { return static_cast<double>(count) * sizeof(float); }
/// Of the state that goes from rank to rank for one head, forward and in each way backward.
double state_bytes(bool is_backward) {
  return float_bytes(is_backward ? fovea::linear_grad_carried<float>(kWidth, kWidth)
                                 : fovea::linear_state_elements<float>(kMap));
}

/// The rows of segments that lie on several ranks.
class BrokenSegments {
 public:
  explicit BrokenSegments(const RowLayout& layout)
      : layout_(layout), owners_(layout), summed_(owners_.layout()) {}

  Index segments(int rank) const { return static_cast<Index>(owners_.of(rank).size()); }
  /// Of a rank that sums segments, whether others do so before it, and behind it.
  int neighbours(int rank) const {
    if (summed_.of(rank).empty()) return 0;
    const Range own = summed_.of(rank).front();
    return (own.begin > 0 ? 1 : 0) + (own.end < summed_.rows() ? 1 : 0);
  }
  /// Rows that this rank sends to those that sum them, and that it has summed for others.
  Index sent(int rank) const { return meeting(layout_, summed_, rank); }
  Index sent_back(int rank) const { return meeting(summed_, layout_, rank); }

 private:
  static Index meeting(const RowLayout& of, const RowLayout& with, int rank) {
    return rows_sent(of, rank,
                     [&](int to) { return with.of(to).empty() ? Range{} : with.of(to).front(); });
  }

  const RowLayout& layout_;
  SegmentOwners owners_;
  RowLayout summed_;
};

/// Of sums that all ranks fold, one slice each: those of each segment go to the ranks of the
/// slices, and the folded slices to all ranks. Backward there are sums of tokens and of rows.
double totals_bytes(const RowLayout& layout, Index heads, bool is_backward) {
  constexpr Index unit = 16;
  const Index units = (fovea::linear_sum_elements<float>(kMap) + unit - 1) / unit;
  const BrokenSegments broken(layout);
  const Index ranks = layout.ranks();
  return most_of_ranks(layout.ranks(), [&](int rank) {
    const Index slice = (units * (rank + 1) / ranks - units * rank / ranks) * unit;
    const Index sums =
        heads * (broken.segments(rank) * (units * unit - slice) + (ranks - 1) * slice);
    const Index row = heads * kWidth;  // elements of a tensor
    if (!is_backward) return float_bytes(sums + 2 * row * broken.sent(rank));
    return float_bytes(2 * sums + row * (4 * broken.sent(rank) + 3 * broken.sent_back(rank)));
  });
}

Costs totals_costs(Index heads, bool is_backward) {
  Costs costs;
  costs.pairs = [](double n) { return n * kWidth; };
  costs.bytes = [=](const RowLayout& layout) { return totals_bytes(layout, heads, is_backward); };
  costs.messages = [=](int ranks) {
    return (is_backward ? 4.0 : 2.0) * (ranks - 1) + agreements(ranks);
  };
  return costs;
}

/// Bytes of the states that a rank sends on, and of the rows that are moved. Backward the chain is
/// of ranks that sum segments, and has two ways.
double chain_bytes(const RowLayout& layout, int rank, const BrokenSegments& broken, Index heads,
                   bool is_backward, bool has_near) {
  const double state = static_cast<double>(heads) * state_bytes(is_backward);
  if (!is_backward) return rank + 1 < layout.ranks() ? state : 0;
  const double ways = broken.neighbours(rank);
  const Index row = heads * kWidth;  // elements of a tensor
  return state * ways +
         float_bytes(row * ((has_near ? 7 : 4) * broken.sent(rank) + 3 * broken.sent_back(rank)));
}

/// Bytes of the rows in the margins of a near field: keys go to the rank behind; backward, queries
/// go to the rank before.
double margin_bytes(const RowLayout& layout, int rank, Index heads, bool is_backward) {
  const auto begin = [&](int to) { return layout.of(to).front().begin; };
  const auto end = [&](int to) { return layout.of(to).back().end; };
  const Index keys = rows_sent(layout, rank, [&](int to) {
    return Range{begin(to) - kBand, end(to)};
  });
  const Index queries = rows_sent(layout, rank, [&](int to) {
    return Range{begin(to), end(to) + kBand};
  });
  return float_bytes(heads * (2 * kWidth * keys + (is_backward ? 3 * kWidth + 2 : 0) * queries));
}

Costs chain_costs(Index heads, bool is_backward, bool has_near) {
  Costs costs;
  const double near = has_near ? kBand + 1 : 0;
  costs.pairs = [=](double n) { return n * (near + kWidth); };
  costs.bytes = [=](const RowLayout& layout) {
    const BrokenSegments broken(layout);
    return most_of_ranks(layout.ranks(), [&](int rank) {
      const double chain = chain_bytes(layout, rank, broken, heads, is_backward, has_near);
      return has_near ? chain + margin_bytes(layout, rank, heads, is_backward) : chain;
    });
  };
  const double ways = is_backward ? 2 : 1;
  costs.messages = [=](int ranks) {
    const double links = ranks > 1 ? ranks + static_cast<double>(heads) - 2 : 0;
    return ways * links + agreements(ranks);
  };
  costs.serial = kWidth / (near + kWidth) / static_cast<double>(heads);
  costs.chain_bytes = ways * state_bytes(is_backward);
  return costs;
}

/// \param saved, grads as the operator has them   \param costs costs(is_backward)
template <class Op, class Saved, class Grads, class CostsOf>
System system_of(std::string name, std::string style, const Op& op, const Saved& saved,
                 const Grads& grads, const CostsOf& costs) {
  const auto op_of = [op](Index) { return op; };
  const auto inputs = [](Tensors& t) {
    fovea::InputsOf<Op, float> in;
    in.q = t.q();
    in.k = t.k();
    in.v = t.v();
    return in;
  };
  return {std::move(name),
          std::move(style),
          false,
          RowLayout::contiguous,
          forward_of(op_of, inputs, saved, costs(false)),
          backward_of(op_of, inputs, saved, grads, costs(true))};
}

}  // namespace

std::vector<System> far_systems(Index heads, bool saves) {
  using Linear = fovea::LinearAttention<fovea::EluPlusOne>;
  const auto nothing = [](Tensors&) { return fovea::LinearSaved<float>{}; };
  const auto grads = [](Tensors& t) {
    return fovea::LinearGrads<float>{t.d_q(), t.d_k(), t.d_v()};
  };
  const auto near = [saves](Tensors& t) {
    fovea::FmmSaved<float> saved;
    if (saves) saved = {t.near_out(), t.lse()};
    return saved;
  };
  const auto fmm_grads = [](Tensors& t) {
    fovea::FmmGrads<float> made;
    made.q = t.d_q();
    made.k = t.d_k();
    made.v = t.d_v();
    return made;
  };
  std::vector<System> systems = {
      system_of("linear", "linear", Linear(), nothing, grads,
                [=](bool is_backward) { return totals_costs(heads, is_backward); }),
      system_of("linear, causal", "linear", Linear({.causal = true}), nothing, grads,
                [=](bool is_backward) { return chain_costs(heads, is_backward, false); }),
      system_of("FMM, causal", "fmm",
                fovea::FmmOneKernel({.near = {.left = kBand}, .causal = true}), near, fmm_grads,
                [=](bool is_backward) { return chain_costs(heads, is_backward, true); })};
  systems[0].dashed = true;
  return systems;
}

}  // namespace bench
