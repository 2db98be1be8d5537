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

constexpr Index kPacked = 64;      // P of Luna
constexpr Index kProjected = 128;  // P of Linformer
constexpr Index kLandmarks = 64;

double bytes_of(Index heads, Index elements) {
  return float_bytes(static_cast<double>(heads * elements));
}

/// Running softmaxes of packed queries go along whole segments of keys; backward, the gradients of
/// these queries do.
void add_packed_queries(Sent& sent, const RowLayout& layout, Index heads, Index packed,
                        bool is_backward) {
  const RowLayout whole = whole_segments(layout, fovea::kKeySegment);
  const double keys = RowBytes(heads).keys;
  sent.moved(layout, whole, keys);
  if (is_backward) sent.moved(whole, layout, keys);
  sent.chain_to_all(whole, bytes_of(heads, packed * (kWidth + (is_backward ? 0 : 3))));
}

/// Nothing travels to packed keys; backward, their gradients go along whole blocks of queries.
void add_packed_keys(Sent& sent, const RowLayout& layout, Index heads, Index packed,
                     bool is_backward) {
  if (!is_backward) return;
  const RowLayout whole = whole_segments(layout, fovea::block_rows(layout.rows()));
  sent.moved(layout, whole, bytes_of(heads, 3 * kWidth + 1));
  sent.moved(whole, layout, bytes_of(heads, kWidth));
  sent.chain_to_all(whole, bytes_of(heads, 2 * packed * kWidth));
}

/// What Linformer projects goes along whole chains of tokens, as many rows at a time as divide P
/// into equal parts. It is saved for the backward pass.
void add_projections(Sent& sent, const RowLayout& layout, Index heads, bool is_backward) {
  if (is_backward) return add_packed_keys(sent, layout, heads, kProjected, true);
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
  add_packed_queries(sent, layout, heads, kLandmarks, is_backward);
  add_packed_keys(sent, layout, heads, kLandmarks, is_backward);
}

/// \param chains of messages, forward and backward
CostsOf packed_costs(Index heads, Index packed, std::array<double, 2> chains,
                     void (*add)(Sent&, const RowLayout&, Index, bool)) {
  return [=](bool is_backward) {
    Costs costs;
    costs.pairs = [=](double n) { return n * static_cast<double>(packed); };
    costs.sent = [=](const RowLayout& layout) {
      Sent sent(layout);
      add(sent, layout, heads, is_backward);
      return sent;
    };
    const double count = chains[is_backward ? 1 : 0];
    costs.messages = messages_of_chains(count, heads);
    costs.chain_bytes = count * bytes_of(1, packed * kWidth);
    return costs;
  };
}

System linformer(Look look, Index heads, bool saves) {
  using Op = fovea::LinformerAttention;
  const auto columns = [](const Tensors& t) { return Shape{1, 1, kProjected, t.rows()}; };
  const auto inputs = [=](Tensors& t) {
    auto in = read_qkv<Op>(t);
    in.key_projection = t.given("e", columns(t));
    in.value_projection = t.given("f", columns(t));
    return in;
  };
  const auto saved = [=](Tensors& t) {
    const Shape projected = {1, heads, kProjected, kWidth};
    fovea::LinformerSaved<float> made;
    if (saves) made = {t.lse(), t.made("e k", projected), t.made("f v", projected)};
    return made;
  };
  const auto grads = [=](Tensors& t) {
    auto made = qkv_grads<Op>(t);
    made.key_projection = t.made("d_e", columns(t));
    made.value_projection = t.made("d_f", columns(t));
    return made;
  };
  return system_of(std::move(look), RowLayout::contiguous, Call(same(Op()), inputs, saved, grads),
                   packed_costs(heads, kProjected, {1, 1}, add_projections));
}

System nystroem(Look look, Index heads, bool saves) {
  using Op = fovea::NystroemAttention;
  const auto saved = [=](Tensors& t) {
    const auto of_landmarks = [&](Index width) { return Shape{1, heads, kLandmarks, width}; };
    fovea::NystroemSaved<float> made;
    if (saves) {
      made = {t.lse(), t.made("lse of landmarks", of_landmarks(1)),
              t.made("values of landmarks", of_landmarks(kWidth))};
    }
    return made;
  };
  return system_of(std::move(look), RowLayout::contiguous,
                   Call(same(Op({.landmarks = kLandmarks})), read_qkv<Op>, saved, qkv_grads<Op>),
                   packed_costs(heads, kLandmarks, {3, 4}, add_landmarks), kLandmarks);
}

Shape packed_rows(const Tensors& t, Index width = kWidth) { return {1, t.heads(), kPacked, width}; }

System luna_pack(Look look, Index heads, bool saves) {
  using Op = fovea::LunaPack;
  const auto inputs = [](Tensors& t) {
    auto in = read_qkv<Op>(t);
    in.q = t.alike("packed q", packed_rows(t));
    return in;
  };
  const auto saved = [saves](Tensors& t) {
    fovea::SoftmaxSaved<float> made;
    if (saves) made.lse = t.made("packed lse", packed_rows(t, 1));
    return made;
  };
  const auto grads = [](Tensors& t) {
    auto made = qkv_grads<Op>(t);
    made.q = t.made("packed d_q", packed_rows(t));
    return made;
  };
  Call call(same(Op()), inputs, saved, grads);
  call.out = [](Tensors& t) { return t.made("packed out", packed_rows(t)); };
  call.d_out = [](Tensors& t) { return t.alike("packed d_out", packed_rows(t)); };
  return system_of(
      std::move(look), RowLayout::contiguous, call,
      packed_costs(heads, kPacked, {1, 1},
                   [](Sent& sent, const RowLayout& layout, Index of_heads, bool is_backward) {
                     add_packed_queries(sent, layout, of_heads, kPacked, is_backward);
                   }));
}

System luna_unpack(Look look, Index heads, bool saves) {
  using Op = fovea::LunaUnpack;
  const auto inputs = [](Tensors& t) {
    fovea::InputsOf<Op, float> in;
    in.q = t.q();
    in.k = t.alike("packed k", packed_rows(t));
    in.v = t.alike("packed v", packed_rows(t));
    return in;
  };
  const auto grads = [](Tensors& t) {
    fovea::GradsOf<Op, float> made;
    made.q = t.d_q();
    made.k = t.made("packed d_k", packed_rows(t));
    made.v = t.made("packed d_v", packed_rows(t));
    return made;
  };
  return system_of(
      std::move(look), RowLayout::contiguous, Call(same(Op()), inputs, saves_lse<Op>(saves), grads),
      packed_costs(heads, kPacked, {0, 1},
                   [](Sent& sent, const RowLayout& layout, Index of_heads, bool is_backward) {
                     add_packed_keys(sent, layout, of_heads, kPacked, is_backward);
                   }));
}

}  // namespace

Systems packed_systems(Index heads, bool saves) {
  const auto packed = Family::packed_rows;
  return {
      linformer({"Linformer 128", "linformer", packed}, heads, saves),
      nystroem({"Nystroem 64", "nystroem", packed}, heads, saves),
      luna_pack({"Luna 64, pack", "luna", packed}, heads, saves),
      luna_unpack({"Luna 64, unpack", "luna", packed}, heads, saves),
  };
}

}  // namespace bench
