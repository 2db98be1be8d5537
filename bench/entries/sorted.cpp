// SPDX-License-Identifier: MIT
/// \file
/// Entries of attention over sorted rows: Sinkhorn attention in blocks of 64 rows, and Reformer
/// attention in chunks of 64 with 4 rounds of 64 buckets.
#include "bench/entries/operators.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/entries/pass_entry.hpp"
#include "fovea/attention/reformer.hpp"
#include "fovea/attention/sinkhorn.hpp"
#include "tests/support/oracle/softmax_grad.hpp"

namespace bench {

namespace {

using fovea::ReformerAttention;
using fovea::SinkhornAttention;

/// The rows of a block, and of a chunk.
constexpr Index kRows = 64;

/// The sorting logits.
template <class T>
struct SinkhornData : PlainData<T> {
  SinkhornData(const AllInputs<T>& in, const SinkhornAttention& op) : PlainData<T>(in, op) {
    const Index blocks = in.k.rows() / kRows;
    this->inputs.sorting = this->keep({1, in.k.heads(), blocks, blocks},
                                      gaussians<T>(7, 0, in.k.heads() * blocks * blocks));
  }
};

/// The weights of one head by plain loops.
std::vector<double> sorting_weights(const View<const float>& logits, Index iterations, Index head) {
  const Index n = logits.rows();
  std::vector<double> x;
  for (Index u = 0; u < n; ++u) {
    for (Index w = 0; w < n; ++w) x.push_back(std::exp(double{logits(0, head, u, w)}));
  }
  for (Index step = 0; step < 2 * iterations; ++step) {
    const auto at = [&](Index a, Index b) -> double& {
      return x[static_cast<std::size_t>(step % 2 == 0 ? a * n + b : b * n + a)];
    };
    for (Index a = 0; a < n; ++a) {
      double sum = 0;
      for (Index b = 0; b < n; ++b) sum += at(a, b);
      for (Index b = 0; b < n; ++b) at(a, b) /= sum;
    }
  }
  return x;
}

RowReference<float> sinkhorn_row(const AllInputs<float>& in, const std::vector<double>& weights,
                                 Index head, Index row) {
  const Index key_head = head / (in.q.heads() / in.k.heads());
  const Index n = in.k.rows() / kRows;
  const Index block = row / kRows;
  const double scale = 1 / std::sqrt(static_cast<double>(in.q.width()));
  const auto element = [&](const View<const float>& x, Index t, Index c) {
    if (t >= kRows) return double{x(0, key_head, block * kRows + t - kRows, c)};
    double sum = 0;
    for (Index w = 0; w < n; ++w) {
      sum += weights[static_cast<std::size_t>(block * n + w)] *
             double{x(0, key_head, w * kRows + t, c)};
    }
    return sum;
  };
  fovea_test::OracleRow<float> made;
  for (Index t = 0; t < 2 * kRows; ++t) {
    double logit = 0;
    double size = 0;
    for (Index c = 0; c < in.q.width(); ++c) {
      const double term = scale * double{in.q(0, head, row, c)} * element(in.k, t, c);
      logit += term;
      size += std::abs(term);
    }
    made.add(t, logit, size);
  }
  fovea_test::set_weights(made);
  RowReference<float> out;
  for (Index c = 0; c < in.v.width(); ++c) {
    fovea_test::detail::Sum<float> sum;
    for (Index t = 0; t < 2 * kRows; ++t) {
      sum.add(made.p[static_cast<std::size_t>(t)] * element(in.v, t, c));
    }
    out.value.push_back(sum.value);
    out.gauge.push_back(sum.magnitude * (1 + made.largest));
  }
  return out;
}

/// The rows of a block and of a chunk are the same, and so is what both operators need of N.
template <class O>
struct SortedSubject : Subject<O> {
  static constexpr bool kInDouble = false;

  static void describe(Entry& entry, Index rounds) {
    entry.obstacle = [](const AttentionShape& s) -> std::string {
      return s.keys % kRows == 0 && s.queries == s.keys ? "" : "N is not a multiple of 64";
    };
    entry.attended_pairs = [rounds](const AttentionShape& s) {
      return s.query_heads * s.queries * 2 * kRows * rounds;
    };
  }
};

struct SinkhornSubject : SortedSubject<SinkhornAttention> {
  template <class T, class S>
  using Data = SinkhornData<T>;

  Error error(const SinkhornData<float>& data, const View<const float>& out, Index samples,
              const Rounding&) const {
    std::vector<std::vector<double>> weights;
    for (Index h = 0; h < data.inputs.k.heads(); ++h) {
      weights.push_back(sorting_weights(data.inputs.sorting, op.options.iterations, h));
    }
    const Index group = data.inputs.q.heads() / data.inputs.k.heads();
    return sampled_error<float>(out, samples, [&](Index head, Index row) {
      return sinkhorn_row(data.inputs, weights[static_cast<std::size_t>(head / group)], head, row);
    });
  }
  static void describe(Entry& entry) { SortedSubject::describe(entry, 1); }
};

/// The values of each query head, where several share them: Reformer attention has no such heads.
template <class T>
struct ReformerData : PlainData<T> {
  ReformerData(const AllInputs<T>& in, const ReformerAttention& op) : PlainData<T>(in, op) {
    const Index group = in.q.heads() / in.v.heads();
    if (group == 1) return;
    std::vector<T> values;
    for (Index h = 0; h < in.q.heads(); ++h) {
      for (Index row = 0; row < in.v.rows(); ++row) {
        for (Index c = 0; c < in.v.width(); ++c) values.push_back(in.v(0, h / group, row, c));
      }
    }
    this->inputs.v = this->keep({1, in.q.heads(), in.v.rows(), in.v.width()}, std::move(values));
  }
};

/// The rows of a head in the order of a round.
std::vector<Index> sorted_rows(const std::vector<Index>& buckets, std::size_t first, Index rows) {
  std::vector<Index> order;
  for (Index n = 0; n < rows; ++n) order.push_back(n);
  std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
    return buckets[first + static_cast<std::size_t>(a)] <
           buckets[first + static_cast<std::size_t>(b)];
  });
  return order;
}

/// What row sees in all rounds is in one softmax, as the rounds are weighed by their sums.
/// \param orders of the rows in each round
RowReference<float> reformer_row(const AllInputs<float>& in,
                                 std::span<const std::vector<Index>> orders, Index head,
                                 Index row) {
  const double scale = 1 / std::sqrt(static_cast<double>(in.q.width()));
  const Index chunks = in.q.rows() / kRows;
  fovea_test::OracleRow<float> made;
  made.key_head = head;
  for (const std::vector<Index>& order : orders) {
    const Index chunk = (std::find(order.begin(), order.end(), row) - order.begin()) / kRows;
    for (Index t = 0; t < (chunks > 1 ? 2 : 1) * kRows; ++t) {
      const Index seen = (chunk + (t < kRows ? 0 : chunks - 1)) % chunks;
      const Index j = order[static_cast<std::size_t>(seen * kRows + t % kRows)];
      double square = 0;
      double product = 0;
      double size = 0;
      for (Index c = 0; c < in.q.width(); ++c) {
        const double x = in.q(0, head, j, c);
        square += x * x;
        product += scale * double{in.q(0, head, row, c)} * x;
        size += std::abs(scale * double{in.q(0, head, row, c)} * x);
      }
      made.add(j, j == row ? -5e4 : product / std::sqrt(square), size / std::sqrt(square));
    }
  }
  fovea_test::set_weights(made);
  return oracle_out(in, made);
}

struct ReformerSubject : SortedSubject<ReformerAttention> {
  template <class T, class S>
  using Data = ReformerData<T>;

  static fovea::ReformerShape shape(const AttentionShape& s) {
    return {s.batch, s.query_heads, s.queries, s.width, s.value_width};
  }
  template <class T>
  static fovea::ReformerInputs<T> inputs(const ReformerData<T>&, const AllInputs<T>& in) {
    return {in.q, in.v};
  }
  template <class T>
  Shape saved_shape(std::string_view name, const AllInputs<T>& in) const {
    return {1, in.q.heads(), in.q.rows(), name == "round_lse" ? op.options.rounds : 1};
  }
  Error error(const ReformerData<float>& data, const View<const float>& out, Index samples,
              const Rounding&) const {
    const Index rounds = op.options.rounds;
    const Index heads = data.inputs.q.heads();
    const Index rows = data.inputs.q.rows();
    std::vector<Index> buckets(static_cast<std::size_t>(heads * rounds * rows));
    op.buckets(inputs(data, data.inputs), View<Index>(buckets.data(), {1, heads, rounds, rows}));
    std::vector<std::vector<Index>> orders;
    for (Index n = 0; n < heads * rounds; ++n) {
      orders.push_back(sorted_rows(buckets, static_cast<std::size_t>(n * rows), rows));
    }
    return sampled_error<float>(out, samples, [&](Index head, Index row) {
      const std::span<const std::vector<Index>> all(orders);
      return reformer_row(
          data.inputs,
          all.subspan(static_cast<std::size_t>(head * rounds), static_cast<std::size_t>(rounds)),
          head, row);
    });
  }
  static void describe(Entry& entry) { SortedSubject::describe(entry, 4); }
};

Entry sinkhorn(Names names, std::vector<Family> families) {
  const SinkhornSubject of{{{SinkhornAttention{{.block = kRows}}}}};
  return pass_entry(std::move(names), of, std::move(families));
}
Entry reformer(Names names, std::vector<Family> families) {
  const ReformerSubject of{{{ReformerAttention{{.chunk = kRows}}}}};
  return pass_entry(std::move(names), of, std::move(families));
}

}  // namespace

std::vector<Entry> sorted_entries() {
  const std::vector<Family> families = {{.lengths = {1024, 4096, 16384}},
                                        {.threads = 2, .lengths = {16384}}};
  // clang-format off
  return {
      sinkhorn({"sinkhorn", "block:64", "Sinkhorn"}, families),
      reformer({"reformer", "chunk:64,rounds:4", "Reformer"}, families),
      sinkhorn({"sinkhorn", "block:64", "Sinkhorn, training", Pass::training}, {}),
      reformer({"reformer", "chunk:64,rounds:4", "Reformer, training", Pass::training}, {}),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      sinkhorn({"sinkhorn", "block:64", "", Pass::backward}, families),
      reformer({"reformer", "chunk:64,rounds:4", "", Pass::backward}, families),
#endif
  };
  // clang-format on
}

}  // namespace bench
