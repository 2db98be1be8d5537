// SPDX-License-Identifier: MIT
/// \file
/// Entries of attention over sorted rows: Sinkhorn attention in blocks of 64 rows, and Reformer
/// attention in chunks of 64 with 4 rounds of 64 buckets.
#include "bench/entries/operators.hpp"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/entries/pass_entry.hpp"
#include "fovea/attention/reformer.hpp"
#include "fovea/attention/sinkhorn.hpp"
#include "tests/support/oracle/reformer.hpp"
#include "tests/support/oracle/sinkhorn.hpp"

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

/// The truth for a row, whose unit takes the sorted blocks for numbers that are given.
RowReference<float> sinkhorn_row(const AllInputs<float>& in,
                                 const fovea_test::OracleSort<float>& sort, Index head, Index row) {
  const Index key_head = head / (in.q.heads() / in.k.heads());
  const Index block = row / kRows;
  const double scale = 1 / std::sqrt(static_cast<double>(in.q.width()));
  const auto element = [&](const View<const float>& x, Index t, Index c) {
    if (t >= kRows) return double{x(0, key_head, block * kRows + t - kRows, c)};
    return sort.sorted(x, block, t, c).value;
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
    const fovea::SinkhornInputs<float> in = data.inputs;
    std::vector<fovea_test::OracleSort<float>> heads;
    for (Index h = 0; h < in.k.heads(); ++h) heads.emplace_back(in, op.options, 0, h);
    const Index group = in.q.heads() / in.k.heads();
    return sampled_error<float>(out, samples, [&](Index head, Index row) {
      return sinkhorn_row(data.inputs, heads[static_cast<std::size_t>(head / group)], head, row);
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
    const fovea::ReformerInputs<float> in = inputs(data, data.inputs);
    const Shape shape = {1, in.qk.heads(), op.options.rounds, in.qk.rows()};
    std::vector<Index> numbers(static_cast<std::size_t>(shape[1] * shape[2] * shape[3]));
    const View<Index> buckets(numbers.data(), shape);
    op.buckets(in, buckets);
    std::vector<fovea_test::OracleHashes<float>> heads;
    for (Index h = 0; h < shape[1]; ++h) heads.emplace_back(in, op.options, 0, h, buckets);
    return sampled_error<float>(out, samples, [&](Index head, Index row) {
      const auto& hashes = heads[static_cast<std::size_t>(head)];
      return hashes.out(hashes.row(row));
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
