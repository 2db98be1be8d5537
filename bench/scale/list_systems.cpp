// SPDX-License-Identifier: MIT
/// \file
/// Smart Bird and FSAT attention, as fovea_scale measures them: which keys a row sees depends on
/// numbers, so bytes are those of keys that are chosen evenly.
#include <cmath>
#include <utility>

#include "bench/scale/calls.hpp"
#include "fovea/attention/fsat.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/distributed/fsat_backward.hpp"
#include "fovea/distributed/fsat_forward.hpp"
#include "fovea/distributed/smart_bird_backward.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"

namespace bench {
namespace {

constexpr Index kChosen = 20;  // keys of a row and head

double float_bytes(double count) { return count * sizeof(float); }
/// How likely it is that one of so many draws hits what each hits with a probability.
double any_of(double draws, double probability) {
  return probability >= 1 ? 1 : -std::expm1(draws * std::log1p(-probability));
}

Costs bird_costs(Index heads, bool is_backward) {
  const auto h = static_cast<double>(heads);
  Costs costs;
  costs.basis = Basis::mean;
  // Forward each row looks at all keys of the sketch.
  costs.pairs = [=](double n) { return n * (is_backward ? kChosen : n); };
  costs.bytes = [=](const RowLayout& layout) {
    const double ranks = layout.ranks();
    const auto own = static_cast<double>(layout.count(0));
    const auto rows = static_cast<double>(layout.rows());
    // A key goes to each other rank that has a row which has chosen it.
    const double keys = 2 * kWidth * h * any_of(own * kChosen * h, 1 / rows);
    if (!is_backward) return own * (ranks - 1) * float_bytes(kSketchColumns + keys);
    // A row goes, with its list, to each other rank of which it has chosen a key.
    const double row = 3 * kWidth + 2 + kChosen * (sizeof(Index) / sizeof(float));
    return own * (ranks - 1) * float_bytes(keys + row * h * any_of(kChosen * h, 1 / ranks));
  };
  const double tensors = is_backward ? 7 * h : 2 * h + 1;
  costs.messages = [=](int ranks) { return (tensors + 1) * (ranks - 1) + agreements(ranks); };
  return costs;
}

Costs fsat_costs(Index heads, bool is_backward) {
  const auto h = static_cast<double>(heads);
  Costs costs;
  costs.basis = Basis::mean;
  costs.pairs = [](double n) { return n * kDominant; };
  costs.bytes = [=](const RowLayout& layout) {
    const double ranks = layout.ranks();
    const auto own = static_cast<double>(layout.count(0));
    const double edges = kDominant * h;
    // A key goes to each other rank that it has an edge to, a query to each that one of its edges
    // comes from.
    const double key = (2 * kWidth + kDominant) * h * any_of(edges, 1 / ranks);
    const double query = (3 * kWidth + 2) * h * -std::expm1(-edges / ranks);
    return own * (ranks - 1) * float_bytes(is_backward ? key + query : key);
  };
  const double tensors = is_backward ? 7 * h : 3 * h;
  costs.messages = [=](int ranks) { return (tensors + 1) * (ranks - 1) + agreements(ranks); };
  return costs;
}

System bird_system(Index heads, bool saves) {
  const auto op = [](Index) { return fovea::SmartBirdAttention{{.keys_per_row = kChosen}}; };
  const auto inputs = [](Tensors& t) {
    fovea::SmartBirdInputs<float> in{t.q(), t.k(), t.v()};
    in.sketch_q = t.sketch();
    in.sketch_k = t.sketch();
    return in;
  };
  const auto saved = [saves](Tensors& t) {
    fovea::SmartBirdSaved<float> made;
    if (saves) made = {t.lse(), t.indices(kChosen)};
    return made;
  };
  const auto grads = [](Tensors& t) {
    return fovea::SmartBirdGrads<float>{t.d_q(), t.d_k(), t.d_v()};
  };
  return {"Smart Bird",
          "smart_bird",
          false,
          RowLayout::contiguous,
          forward_of(op, inputs, saved, bird_costs(heads, false)),
          backward_of(op, inputs, saved, grads, bird_costs(heads, true))};
}

System fsat_system(Index heads, bool saves) {
  const auto op = [](Index rows) { return fovea::FsatAttention(fovea::FsatOptions{rows}); };
  const auto inputs = [](Tensors& t) {
    fovea::FsatInputs<float> in{t.q(), t.k(), t.v()};
    in.dominant = t.dominant();
    return in;
  };
  const auto saved = [saves](Tensors& t) {
    return fovea::FsatSaved<float>{saves ? t.lse() : fovea::View<float>()};
  };
  const auto grads = [](Tensors& t) {
    fovea::FsatGrads<float> made;
    made.q = t.d_q();
    made.k = t.d_k();
    made.v = t.d_v();
    made.dominant = t.d_dominant();
    return made;
  };
  return {"FSAT",
          "fsat",
          false,
          RowLayout::contiguous,
          forward_of(op, inputs, saved, fsat_costs(heads, false)),
          backward_of(op, inputs, saved, grads, fsat_costs(heads, true))};
}

}  // namespace

std::vector<System> list_systems(Index heads, bool saves) {
  return {bird_system(heads, saves), fsat_system(heads, saves)};
}

}  // namespace bench
