// SPDX-License-Identifier: MIT
/// \file
/// The Fourier mixer and the cross of hidden states, as fovea_scale measures them: ranks compute
/// them by channels, which are those of all heads side by side.
#include <cmath>
#include <tuple>
#include <utility>

#include "bench/scale/calls.hpp"
#include "fovea/distributed/fourier_mixer.hpp"
#include "fovea/distributed/hidden_state_cross.hpp"
#include "fovea/distributed/spectral/mixer_share.hpp"

namespace bench {
namespace {

using fovea::distributed::detail::MixerShare;

double fourier_pairs(double n) { return n * std::log2(std::max(2.0, n)); }

Index channels_of(const Tensors& t) { return t.heads() * kWidth; }
View<const float> read(Tensors& t, const char* name) {
  return t.given(name, {1, 1, t.rows(), channels_of(t)});
}
View<float> written(Tensors& t, const char* name) {
  return t.made(name, {1, 1, t.rows(), channels_of(t)});
}

/// The pairs of rows that each rank computes and what it sends of rows to those of others, block by
/// block (layout_of_pairs says whose a block is).
class RowPairs {
 public:
  explicit RowPairs(const RowLayout& layout) : rows_(layout.rows()), moved_(layout) {
    const Index pairs = rows_ / 2 + 1;
    const Index block = std::max(Index{1}, pairs / (16 * layout.ranks()));
    counts_.resize(static_cast<std::size_t>(layout.ranks()));
    std::vector<Index> cuts = {0, 1, rows_ / 2, pairs};
    for (Index n = block; n < pairs; n += block) cuts.push_back(n);
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      begins_.push_back(layout.of(rank).front().begin);
      for (const Index cut : {begins_.back(), rows_ - begins_.back() + 1}) {
        if (cut < pairs) cuts.push_back(cut);
      }
    }
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t n = 1; n < cuts.size(); ++n) {
      if (cuts[n - 1] < cuts[n]) add({cuts[n - 1], cuts[n]}, block);
    }
  }

  double count(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  /// Rows that go to the rank of their pair.
  const Sent& moved() const { return moved_; }

 private:
  int rank_of(Index row) const {
    const auto behind = std::upper_bound(begins_.begin(), begins_.end(), row);
    return static_cast<int>(behind - begins_.begin()) - 1;
  }
  /// Some pairs whose rows are on one rank, and their mirror images on one.
  void add(const Range& pairs, Index block) {
    const Index n = pairs.begin;
    const bool is_alone = n == 0 || 2 * n == rows_;
    const int rank = rank_of(n);
    const int mirror = is_alone ? rank : rank_of(rows_ - n);
    const bool is_mirrors = n / block % 2 == 1;
    const auto count = static_cast<double>(pairs.end - pairs.begin);
    counts_[static_cast<std::size_t>(is_mirrors ? mirror : rank)] += count;
    if (mirror != rank) moved_.add(is_mirrors ? rank : mirror, count);
  }

  Index rows_;
  std::vector<Index> begins_;  // of ranks
  Sent moved_;
  std::vector<double> counts_;
};

double numbers_in(const std::vector<Range>& ranges) {
  Index count = 0;
  for (const Range& range : ranges) count += std::max(Index{0}, range.end - range.begin);
  return static_cast<double>(count);
}

/// A row of each pair, sums of pairs to the ranks of their columns, and the result back.
CostsOf mixer_costs(Index heads) {
  return [=](bool) {
    Costs costs;
    costs.pairs = fourier_pairs;
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      const Index width = heads * kWidth;
      const RowPairs pairs(layout);
      const std::vector<MixerShare> shares = MixerShare::of_ranks(width, layout.ranks());
      double sums = 0;
      for (const MixerShare& share : shares) sums += numbers_in(share.sums());
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        const MixerShare& share = shares[static_cast<std::size_t>(rank)];
        sent.add(rank, float_bytes(pairs.moved().of(rank) * static_cast<double>(width)));
        sent.add(rank, float_bytes(pairs.count(rank) * (sums - numbers_in(share.sums()))));
      }
      sent.turned(layout, false, [&](int rank) {
        return float_bytes(numbers_in(shares[static_cast<std::size_t>(rank)].columns()));
      });
    };
    costs.messages = messages_to_all(3);
    costs.most_ranks = static_cast<double>(fovea::mixer_pairs(heads * kWidth));
    return costs;
  };
}

/// All channels of two tensors to the ranks that compute them and one back; backward, three and
/// two.
CostsOf cross_costs(Index heads) {
  return [=](bool is_backward) {
    Costs costs;
    costs.pairs = fourier_pairs;
    costs.add_sent = [=](Sent& sent, const RowLayout& layout) {
      const Index channels = heads * kWidth;
      sent.turned(layout, true, channels, is_backward ? 3 : 2)
          .turned(layout, false, channels, is_backward ? 2 : 1);
    };
    costs.messages = messages_to_all(is_backward ? 5 : 3);
    costs.most_ranks = static_cast<double>(heads * kWidth);
    return costs;
  };
}

fovea::CrossInputs<float> cross_inputs(Tensors& t) { return {read(t, "f1"), read(t, "f2")}; }

System mixer(Index heads) {
  const fovea::FourierMixer op;
  const auto forwards = [](Tensors& t) { return std::tuple(read(t, "x"), written(t, "mixed")); };
  const auto backwards = [](Tensors& t) {
    return std::tuple(read(t, "d_mixed"), written(t, "d_x"));
  };
  return {{"mixer", "mixer", Family::heads},
          RowLayout::contiguous,
          forward_pass(op, forwards, mixer_costs(heads)(false)),
          backward_pass(op, backwards, mixer_costs(heads)(true))};
}

System cross(Index heads) {
  const fovea::HiddenStateCross op;
  const auto forwards = [](Tensors& t) {
    return std::tuple(cross_inputs(t), written(t, "crossed"));
  };
  const auto backwards = [](Tensors& t) {
    const fovea::CrossGrads<float> grads{written(t, "d_f1"), written(t, "d_f2")};
    return std::tuple(cross_inputs(t), read(t, "d_crossed"), grads);
  };
  return {{"cross", "cross", Family::heads},
          RowLayout::contiguous,
          forward_pass(op, forwards, cross_costs(heads)(false)),
          backward_pass(op, backwards, cross_costs(heads)(true))};
}

}  // namespace

Systems spectral_systems(Index heads, bool /*saves*/) { return {mixer(heads), cross(heads)}; }

}  // namespace bench
