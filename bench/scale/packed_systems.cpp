// SPDX-License-Identifier: MIT
/// \file
/// Linformer, Nystroem and Luna attention, as fovea_scale measures them: what travels is rows that
/// all ranks have.
#include <array>
#include <utility>

#include "bench/scale/calls.hpp"
#include "bench/scale/pattern_costs.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/linformer/projection.hpp"
#include "fovea/attention/luna.hpp"
#include "fovea/attention/nystroem.hpp"
#include "fovea/distributed/linformer_backward.hpp"
#include "fovea/distributed/linformer_forward.hpp"
#include "fovea/distributed/luna.hpp"
#include "fovea/distributed/nystroem_backward.hpp"
#include "fovea/distributed/nystroem_forward.hpp"

namespace bench {
namespace {

double bytes_of(Index heads, Index elements) { return float_bytes(heads * elements); }

/// Running softmaxes of packed queries go along whole segments of keys; backward, the gradients of
/// these queries do.
template <Index packed>
void add_packed_queries(Sent& sent, const RowLayout& layout, Index heads, bool is_backward) {
  const RowLayout whole = whole_segments(layout, fovea::kKeySegment);
  const double keys = RowBytes(heads).keys;
  sent.moved(layout, whole, keys);
  if (is_backward) sent.moved(whole, layout, keys);
  sent.chain_to_all(whole, bytes_of(heads, packed * (kWidth + (is_backward ? 0 : 3))));
}

/// Nothing travels to packed keys; backward, their gradients go along whole blocks of queries.
template <Index packed>
void add_packed_keys(Sent& sent, const RowLayout& layout, Index heads, bool is_backward) {
  if (!is_backward) return;
  const RowLayout whole = whole_segments(layout, fovea::block_rows(layout.rows()));
  sent.moved(layout, whole, bytes_of(heads, 3 * kWidth + 1));
  sent.moved(whole, layout, bytes_of(heads, kWidth));
  sent.chain_to_all(whole, bytes_of(heads, 2 * packed * kWidth));
}

/// What Linformer projects goes along whole chains of tokens, as many rows at a time as divide P
/// into equal parts. It is saved for the backward pass.
void add_projections(Sent& sent, const RowLayout& layout, Index heads, bool is_backward) {
  if (is_backward) return add_packed_keys<kProjected>(sent, layout, heads, true);
  constexpr Index of_state = fovea::LinformerProjection<float>::kRowsAtOnce;
  constexpr Index states = (kProjected + of_state - 1) / of_state;
  constexpr Index rows = (kProjected + states - 1) / states;
  const RowLayout whole = whole_segments(layout, fovea::kReductionBlock);
  sent.moved(layout, whole, RowBytes(heads).keys + bytes_of(2, kProjected));
  sent.chain_to_all(whole, bytes_of(heads, states * rows * 2 * kWidth));
}

/// Landmarks are means of queries and of keys, which are packed queries and keys.
void add_landmarks(Sent& sent, const RowLayout& layout, Index heads, bool is_backward) {
  for (int n = 0; n < 2; ++n) {
    sent.chain_to_all(layout, bytes_of(heads, (kLandmarks + 1) * kWidth));
  }
  add_packed_queries<kLandmarks>(sent, layout, heads, is_backward);
  add_packed_keys<kLandmarks>(sent, layout, heads, is_backward);
}

/// \param chains of messages, forward and backward
CostsOf packed_costs(Index heads, Index packed, std::array<double, 2> chains,
                     void (*add)(Sent&, const RowLayout&, Index, bool)) {
  return [=](bool is_backward) {
    Costs costs;
    costs.pairs = [=](double n) { return n * static_cast<double>(packed); };
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      add(sent, layout, heads, is_backward);
    };
    const double count = chains[is_backward ? 1 : 0];
    costs.messages = messages_of_chains(count, heads);
    costs.chain_bytes = count * bytes_of(1, packed * kWidth);
    return costs;
  };
}

}  // namespace

Systems packed_systems(Index heads, bool saves) {
  const auto entry = [](const char* name, const char* style, const auto& op,
                        const CallOptions& options, const CostsOf& costs, Index multiple = 1) {
    return system_of({name, style, Family::packed_rows}, RowLayout::contiguous, op, options, costs,
                     multiple);
  };
  return {
      entry("Linformer 128", "linformer", fovea::LinformerAttention{}, {saves},
            packed_costs(heads, kProjected, {1, 1}, add_projections)),
      entry("Nystroem 64", "nystroem", fovea::NystroemAttention{{.landmarks = kLandmarks}}, {saves},
            packed_costs(heads, kLandmarks, {3, 4}, add_landmarks), kLandmarks),
      entry("Luna 64, pack", "luna", fovea::LunaPack{}, {saves, {"q", "out", "lse"}},
            packed_costs(heads, kPacked, {1, 1}, add_packed_queries<kPacked>)),
      entry("Luna 64, unpack", "luna", fovea::LunaUnpack{}, {saves, {"k", "v"}},
            packed_costs(heads, kPacked, {0, 1}, add_packed_keys<kPacked>)),
  };
}

}  // namespace bench
