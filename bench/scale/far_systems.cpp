// SPDX-License-Identifier: MIT
/// \file
/// Linear, delta-rule, FMM and Performer attention, as fovea_scale measures them.
#include <type_traits>
#include <utility>

#include "bench/scale/calls.hpp"
#include "bench/scale/pattern_costs.hpp"
#include "fovea/attention/delta_rule.hpp"
#include "fovea/attention/fmm.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/linear/feature_grad_stream.hpp"
#include "fovea/attention/linear/feature_segments.hpp"
#include "fovea/attention/linear/feature_stream.hpp"
#include "fovea/attention/linear/stream.hpp"
#include "fovea/attention/performer.hpp"
#include "fovea/distributed/linear_backward.hpp"
#include "fovea/distributed/linear_forward.hpp"
#include "fovea/distributed/performer_backward.hpp"
#include "fovea/distributed/performer_forward.hpp"
#include "fovea/kernels/linear/delta_rule.hpp"
#include "fovea/kernels/linear/grad.hpp"

namespace bench {
namespace {

/// What one pass of a far field sends. Elements are those of one head.
struct FarSizes {
  double near_field = 0;  ///< keys of the near field that a row sees
  Index rates = 0;        ///< whether there are rates of a delta rule
  Index up = 0;           ///< elements of a state of tokens
  Index down = 0;         ///< and of one of rows, backward
  Index tokens = 0;       ///< elements of the sums of a segment of tokens, if they are folded
  Index rows = 0;         ///< and of one of rows, backward
  Index reference = 0;    ///< elements whose largest of all ranks is found before
};

/// Rows travel to those who compute their segments, and gradients back.
void add_segment_rows(Sent& sent, const RowLayout& layout, const RowLayout& whole, Index heads,
                      const FarSizes& sizes) {
  const auto bytes = [&](Index tensors) {
    return float_bytes(heads * (tensors * kWidth + sizes.rates));
  };
  sent.moved(layout, whole, bytes(4)).moved(whole, layout, bytes(3));
  // The gradients of the near field are added to.
  if (sizes.near_field > 0) sent.moved(layout, whole, bytes(3));
}

/// The rows in the margins of a near field: keys go to the rank behind; backward, queries go to the
/// rank before.
void add_margins(Sent& sent, const RowLayout& layout, Index heads, bool is_backward) {
  const auto keys = [](const RowLayout& rows, int rank) -> SomeRows {
    return {{{{rows.of(rank).front().begin - kBand, rows.of(rank).back().end}}}};
  };
  const auto queries = [](const RowLayout& rows, int rank) -> SomeRows {
    return {{{{rows.of(rank).front().begin, rows.of(rank).back().end + kBand}}}};
  };
  add_pattern(sent, layout, RowBytes(heads), is_backward, {keys, queries});
}

/// States go from rank to rank, backward both ways over whole segments.
CostsOf chain_costs(Index heads, FarSizes (*sizes_of)(bool)) {
  return [=](bool is_backward) {
    const FarSizes sizes = sizes_of(is_backward);
    const auto bytes = [=](Index elements) { return float_bytes(heads * elements); };
    Costs costs;
    costs.pairs = [=](double n) { return n * (sizes.near_field + kFeatures); };
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      if (sizes.near_field > 0) add_margins(sent, layout, heads, is_backward);
      if (!is_backward) {
        sent.chain(layout, bytes(sizes.up));
        return;
      }
      const RowLayout whole = whole_segments(layout, fovea::kLinearSegment);
      add_segment_rows(sent, layout, whole, heads, sizes);
      sent.chain(whole, bytes(sizes.up)).chain(whole, bytes(sizes.down), Way::down);
    };
    costs.messages = [=](int ranks) {
      const double links = ranks > 1 ? ranks + static_cast<double>(heads) - 2 : 0;
      return (is_backward ? 2 : 1) * links + agreements(ranks);
    };
    costs.serial = kFeatures / (sizes.near_field + kFeatures) / static_cast<double>(heads);
    costs.chain_bytes = float_bytes(sizes.up + sizes.down);
    return costs;
  };
}

/// Sums that all ranks fold, one slice each: those of each segment go to the ranks of the slices,
/// and the folded slices to all ranks.
void add_totals(Sent& sent, const RowLayout& whole, Index heads, Index elements) {
  constexpr Index unit = 16;
  const Index units = (elements + unit - 1) / unit;
  const int ranks = sent.ranks();
  for (int rank = 0; rank < ranks; ++rank) {
    const Index slice = share_of(units, rank, ranks) * unit;
    const Index segments = segments_of(whole, rank, fovea::kLinearSegment);
    const Index all = heads * (segments * (units * unit - slice) + (ranks - 1) * slice);
    sent.add(rank, float_bytes(all));
  }
}

/// Sums of tokens are folded, and backward those of rows, too.
CostsOf totals_costs(Index heads, FarSizes (*sizes_of)(bool)) {
  return [=](bool is_backward) {
    const FarSizes sizes = sizes_of(is_backward);
    Costs costs;
    costs.pairs = [](double n) { return n * kFeatures; };
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      const RowLayout whole = whole_segments(layout, fovea::kLinearSegment);
      add_totals(sent, whole, heads, sizes.tokens);
      sent.to_all([&](int) { return float_bytes(heads * sizes.reference); });
      if (is_backward) {
        add_totals(sent, whole, heads, sizes.rows);
        add_segment_rows(sent, layout, whole, heads, sizes);
      } else {
        sent.moved(layout, whole, RowBytes(heads).keys);
      }
    };
    costs.messages = messages_to_all(is_backward ? 4 : 2);
    return costs;
  };
}

/// The sizes of an operator with terms.
template <class Op>
FarSizes sizes_of(bool is_backward) {
  const auto far_field = Op().template far_field<float>();
  using Far = std::remove_cvref_t<decltype(far_field)>;
  using Stream = fovea::CausalStream<float, Far>;
  const fovea::LinearShape shape = far_field.linear_shape({1, 1, 1, 1, 1, kWidth, kWidth});
  FarSizes sizes;
  sizes.near_field = Op::kHasNear ? kBand + 1 : 0;
  sizes.rates = Op::kHasBeta ? 1 : 0;
  sizes.up = Stream::state_elements(shape) + Stream::delta_elements(shape);
  if constexpr (Far::kHasSums) {
    sizes.tokens = sizes.rows = fovea::linear_sum_elements<float>(shape);
  }
  if (!is_backward) return sizes;
  sizes.up = 0;
  if constexpr (Far::kHasSums) {
    sizes.up += far_field.linear_maps(kWidth).count *
                fovea::linear_grad_carried<float>(far_field.features(kWidth), kWidth);
  }
  if constexpr (Far::kHasDelta) {
    sizes.up += fovea::delta_grad_carried<float>(1, kWidth, kWidth, false);
  }
  sizes.down = sizes.up;
  return sizes;
}

/// Performer attention's, without the gradient of the projection.
FarSizes performer_sizes(bool is_backward) {
  fovea::PerformerShape shape;
  shape.batch = shape.query_heads = shape.key_heads = shape.queries = shape.keys = 1;
  shape.width = shape.value_width = kWidth;
  shape.features = kFeatures;
  const Index sums = fovea::FeatureSegments<float>::sum_elements(shape);
  FarSizes sizes;
  sizes.reference = fovea::padded_row<float>(kFeatures);
  sizes.tokens = sums + sizes.reference;
  sizes.rows = sums;
  sizes.up = fovea::FeatureStream<float>::state_elements(kFeatures, kWidth);
  if (!is_backward) return sizes;
  sizes.down = fovea::FeatureGradStream<float>::carried_elements(shape);
  sizes.up = sizes.down + sizes.reference;
  return sizes;
}

}  // namespace

Systems far_systems(Index heads, bool saves) {
  using enum Taken;
  using Linear = fovea::LinearAttention<fovea::EluPlusOne>;
  using Delta = fovea::DeltaRuleAttention<>;
  const auto entry = [&](Look look, const auto& op, const CostsOf& costs) {
    // The gradient of a random projection is not measured.
    return system_of(std::move(look), RowLayout::contiguous, op, {saves, {}, {"d_projection"}},
                     costs);
  };
  const auto sums = Family::sums;
  using OneKernel = fovea::FmmOneKernel;
  using FastWeight = fovea::FmmFastWeight;
  return {
      entry({"linear", "linear", sums, always}, Linear(), totals_costs(heads, sizes_of<Linear>)),
      entry({"linear, causal", "linear", sums, always, true}, Linear({.causal = true}),
            chain_costs(heads, sizes_of<Linear>)),
      entry({"FMM, causal", "fmm", sums, always, true},
            OneKernel({.band = {.left = kBand}, .causal = true}),
            chain_costs(heads, sizes_of<OneKernel>)),
      entry({"FMM, fast weight", "fmm", sums, usually, true},
            FastWeight({.band = {.left = kBand}, .causal = true}),
            chain_costs(heads, sizes_of<FastWeight>)),
      entry({"delta rule", "delta", sums, usually, true}, Delta(),
            chain_costs(heads, sizes_of<Delta>)),
      entry({"Performer", "performer", sums}, fovea::PerformerAttention(),
            totals_costs(heads, performer_sizes)),
      entry({"Performer, causal", "performer", sums, usually, true},
            fovea::PerformerAttention({.causal = true}), chain_costs(heads, performer_sizes)),
  };
}

}  // namespace bench
