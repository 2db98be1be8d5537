// SPDX-License-Identifier: MIT
/// \file
/// Attention over lists of keys, as fovea_scale measures it. Which keys a row sees depends on
/// numbers, so bytes are those of keys that are chosen evenly.
#include <cmath>
#include <utility>

#include "bench/scale/calls.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/indexed_backward.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/smart_bird_backward.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"

namespace bench {
namespace {

constexpr Index kChosen = 20;   // keys of a row and head
constexpr Index kDominant = 4;  // M, the dominant indices of a key of FSAT

/// The probability that at least one of that many draws hits, given the probability of each.
double any_of(double draws, double probability) {
  return probability >= 1 ? 1 : -std::expm1(draws * std::log1p(-probability));
}

/// Every row of a rank sends that many bytes to each other rank, on average.
Costs mean_costs(double tensors, std::function<double(const RowLayout&, double own)> row_bytes) {
  Costs costs;
  costs.basis = Basis::mean;
  costs.sent = [=](const RowLayout& layout) {
    return Sent(layout).to_all([&](int rank) {
      const auto own = static_cast<double>(layout.count(rank));
      return own * row_bytes(layout, own);
    });
  };
  costs.messages = messages_to_all(tensors + 1);
  return costs;
}

/// Each row lists some keys. \param sketch columns of what all ranks get of each key before; then
/// each row looks at all keys
CostsOf listed_costs(Index heads, Index sketch) {
  const auto h = static_cast<double>(heads);
  return [=](bool is_backward) {
    const double tensors = is_backward ? 7 * h : 2 * h + (sketch > 0 ? 1 : 0);
    Costs costs = mean_costs(tensors, [=](const RowLayout& layout, double own) {
      const double ranks = layout.ranks();
      const auto rows = static_cast<double>(layout.rows());
      // A key goes to each other rank that has a row which has chosen it.
      const double keys = 2 * kWidth * h * any_of(own * kChosen * h, 1 / rows);
      if (!is_backward) return float_bytes(static_cast<double>(sketch) + keys);
      // A row goes, with its list, to each other rank of which it has chosen a key.
      const double row = 3 * kWidth + 2 + kChosen * (sizeof(Index) / sizeof(float));
      return float_bytes(keys + row * h * any_of(kChosen * h, 1 / ranks));
    });
    const bool looks_at_all = sketch > 0 && !is_backward;
    costs.pairs = [=](double n) { return n * (looks_at_all ? n : kChosen); };
    return costs;
  };
}

CostsOf fsat_costs(Index heads) {
  const auto h = static_cast<double>(heads);
  return [=](bool is_backward) {
    Costs costs = mean_costs(is_backward ? 7 * h : 3 * h, [=](const RowLayout& layout, double) {
      const double ranks = layout.ranks();
      const double edges = kDominant * h;
      // A key goes to each other rank that it has an edge to, a query to each that one of its edges
      // comes from.
      const double key = (2 * kWidth + kDominant) * h * any_of(edges, 1 / ranks);
      const double query = (3 * kWidth + 2) * h * -std::expm1(-edges / ranks);
      return float_bytes(is_backward ? key + query : key);
    });
    costs.pairs = [](double n) { return n * kDominant; };
    return costs;
  };
}

}  // namespace

Systems list_systems(Index heads, bool saves) {
  using enum Taken;
  using fovea::FsatAttention, fovea::IndexedAttention, fovea::SmartBirdAttention;
  const auto lists = Family::lists;
  const auto of_bird = [](Tensors& t) {
    auto in = read_qkv<SmartBirdAttention>(t);
    in.sketch_q = in.sketch_k = t.sketch();
    return in;
  };
  const auto bird_saved = [saves](Tensors& t) {
    fovea::SmartBirdSaved<float> made;
    if (saves) made = {t.lse(), t.made_indices("chosen", t.of_rows(kChosen))};
    return made;
  };
  const auto of_lists = [](Tensors& t) {
    auto in = read_qkv<IndexedAttention>(t);
    in.indices = t.lists(kChosen);
    return in;
  };
  const auto of_fsat = [](Tensors& t) {
    auto in = read_qkv<FsatAttention>(t);
    in.dominant = t.places("dominant", kDominant);
    return in;
  };
  const auto fsat_grads = [](Tensors& t) {
    auto grads = qkv_grads<FsatAttention>(t);
    grads.dominant = t.made("d_dominant", t.of_rows(kDominant));
    return grads;
  };
  const auto fsat = [](Index rows) { return FsatAttention(fovea::FsatOptions{rows}); };
  constexpr LayoutOf contiguous = RowLayout::contiguous;
  return {
      system_of({"Smart Bird", "smart_bird", lists, always}, contiguous,
                Call(same(SmartBirdAttention{{.keys_per_row = kChosen}}), of_bird, bird_saved,
                     qkv_grads<SmartBirdAttention>),
                listed_costs(heads, kSketchColumns)),
      system_of({"FSAT", "fsat", lists, always}, contiguous,
                Call(fsat, of_fsat, saves_lse<FsatAttention>(saves), fsat_grads),
                fsat_costs(heads)),
      system_of({"indexed 20", "indexed", lists}, contiguous,
                Call(same(IndexedAttention{}), of_lists, saves_lse<IndexedAttention>(saves),
                     qkv_grads<IndexedAttention>),
                listed_costs(heads, 0)),
  };
}

}  // namespace bench
