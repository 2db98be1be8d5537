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

/// The probability that at least one of that many draws hits, given the probability of each.
double any_of(double draws, double probability) {
  return probability >= 1 ? 1 : -std::expm1(draws * std::log1p(-probability));
}

/// Every row of a rank sends that many bytes to each other rank, on average.
Costs mean_costs(double tensors, std::function<double(const RowLayout&, double own)> row_bytes) {
  Costs costs;
  costs.basis = Basis::mean;
  costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
    sent.to_all([&](int rank) {
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
  const auto fsat = [](Index rows) { return FsatAttention(fovea::FsatOptions{rows}); };
  const auto entry = [&]<class OpOf>(const char* name, const char* style, Taken taken,
                                     const OpOf& op, const CostsOf& costs) {
    return system_of({name, style, Family::lists, taken}, RowLayout::contiguous, op, {saves},
                     costs);
  };
  return {
      entry("Smart Bird", "smart_bird", always, SmartBirdAttention{{.keys_per_row = kChosen}},
            listed_costs(heads, kSketchColumns)),
      entry("FSAT", "fsat", always, fsat, fsat_costs(heads)),
      entry("indexed 20", "indexed", usually, IndexedAttention{}, listed_costs(heads, 0)),
  };
}

}  // namespace bench
