// SPDX-License-Identifier: MIT
/// \file
/// FSAT and FAT attention in the conformance suite: each call makes the dominant indices of a
/// reference mask of head, key and slot.
#include <algorithm>

#include "attention/cases.hpp"
#include "support/fill.hpp"
#include "support/oracle/fsat.hpp"
#include "support/tensor.hpp"

namespace fovea_test {
namespace {

constexpr Index kSlots = 4;

/// Ibar: near the key, within its 64 tokens, before the key, and up to twice as far; not by the
/// length of the sequence, which tests cut.
double dominant_index(Index h, Index j, Index m) {
  const double u = uniform(hash(78, h, j, m, 0));
  const auto key = static_cast<double>(j);
  const auto block = static_cast<double>(j - j % 64);
  const double all[kSlots] = {key + 24 * u - 12, block + 64 * u, u * key, 2 * u * key};
  return std::max(0.0, all[m]);
}

/// The inputs of one call with its dominant indices, which count within each sequence.
template <class T>
struct DominatedCall {
  explicit DominatedCall(const AllInputs<T>& in)
      : dominant({in.q.batch(), in.q.heads(), in.k.rows(), kSlots}), inputs(in) {
    for (const OracleSequence& s : oracle_sequences(in)) {
      for_each_index({1, in.q.heads(), s.keys, kSlots}, [&](Index, Index h, Index j, Index m) {
        dominant(s.batch, h, s.first_key + j, m) = static_cast<T>(dominant_index(h, j, m));
      });
    }
    inputs.dominant = dominant.view();
  }

  Tensor<T> dominant;
  AllInputs<T> inputs;
};

/// Whether an edge of a sequence leads from a row to a key; `p.keys` are its tokens.
template <class T>
bool has_edge(const fovea::FsatOptions& options, const Pair& p) {
  if (p.row >= p.keys || p.j >= p.keys) return false;
  for (Index m = 0; m < kSlots; ++m) {
    const auto ibar = static_cast<T>(dominant_index(p.h, p.j, m));
    const Index predicted = std::min(static_cast<Index>(ibar), options.max_length - 1);
    if (options.edges != EdgeSource::random && predicted == p.row) return true;
    if (options.edges == EdgeSource::predicted) continue;
    const double u = fovea::uniform_draw<double>(options.seed, p.b, p.h, p.j, m);
    if (static_cast<Index>(u * static_cast<double>(p.keys)) == p.row) return true;
  }
  return false;
}

template <class T>
Case<T> fsat_case(const std::string& name, const fovea::FsatOptions& options) {
  const fovea::FsatAttention op(options);
  const ReferenceMask reference_mask = [options](const Pair& p) { return has_edge<T>(options, p); };
  Case<T> made = make_case<T>(name, op, reference_mask);
  made.options.scale = options.scale;
  made.is_softmax = true;
  made.scales_weights = true;
  made.makes_lists = true;
  made.by_head = true;
  made.is_square = true;
  made.draws = options.edges != EdgeSource::predicted;
  made.forward = [forward = made.forward](const AllInputs<T>& in, const View<T>& out,
                                          const AllSaved<T>& saved, AnyExecutor* executor) {
    forward(DominatedCall<T>(in).inputs, out, saved, executor);
  };
  made.backward = [backward = made.backward](const AllInputs<T>& in, const View<const T>& out,
                                             const AllSaved<T>& saved, const View<const T>& d_out,
                                             const AllGrads<T>& grads, AnyExecutor* executor) {
    backward(DominatedCall<T>(in).inputs, out, saved, d_out, grads, executor);
  };
  made.oracle = [options](const AllInputs<T>& in) {
    return fsat_oracle(DominatedCall<T>(in).inputs, options);
  };
  made.grad_oracle = [options](const AllInputs<T>& in, const View<const T>& d_out) {
    return fsat_grad_oracle(DominatedCall<T>(in).inputs, options, d_out).softmax;
  };
  return made;
}

}  // namespace

template <class T>
std::vector<Case<T>> fsat_cases() {
  // As long as any sequence of the suite; wide enough that no random edge is too faint for float.
  const fovea::FsatOptions predicted{.max_length = 65'536};
  fovea::FsatOptions training{.max_length = 65'536};
  training.variance = 4e8;
  training.confidence = fovea::Confidence::relative;
  training.scale = -0.3;
  training.edges = EdgeSource::both;
  training.seed = 5;
  return {fsat_case<T>("fsat", predicted), fsat_case<T>("fsat_training", training),
          softmax_case<T>("fat", fovea::FatAttention{}, all_pairs)};
}
template std::vector<Case<float>> fsat_cases();
template std::vector<Case<double>> fsat_cases();

}  // namespace fovea_test
