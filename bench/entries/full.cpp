// SPDX-License-Identifier: MIT
/// \file
/// Entries of full attention, and of the same with Eigen's matrices.
#include "bench/entries/operators.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/baselines/eigen_heads.hpp"
#include "bench/entries/decode_entry.hpp"
#include "fovea/attention/full.hpp"

namespace bench {

namespace {

/// Softmax attention with Eigen's matrices in blocks of query rows; see eigen_heads.hpp.
struct EigenBaseline {
  static constexpr Index kWholeMatrix = 0;

  Index block_rows = kWholeMatrix;
  bool causal = false;

  Index rows(Index n) const { return block_rows == kWholeMatrix ? n : std::min(block_rows, n); }

  template <class T>
  Index workspace_bytes(const AttentionShape& shape, Index workers) const {
    return workers * rows(shape.queries) * (shape.keys + 1) * Index{sizeof(T)};
  }

  Index attended_pairs(const AttentionShape& shape) const {
    const Index n = shape.queries;
    return shape.query_heads * (causal ? n * (n + 1) / 2 : n * n);
  }

  /// Pairs of a block: every row of it with every key that its last row sees.
  Index computed_pairs(const AttentionShape& shape) const {
    const Index n = shape.queries;
    Index pairs = 0;
    for (Index first = 0; first < n; first += rows(n)) {
      const Index count = std::min(rows(n), n - first);
      pairs += count * (causal ? first + count : n);
    }
    return pairs;
  }

  /// Heads are shared out over the threads.
  template <class T>
  void forward(const AllInputs<T>& in, const View<T>& out, ThreadPool& pool) const {
    const AttentionShape shape = fovea::shape_of(in);
    const Index workers = fovea::worker_count(pool, shape.query_heads);
    const Index slot = workspace_bytes<T>(shape, 1);
    fovea::Workspace scratch(workers, slot);
    fovea::for_each_task(pool, shape.query_heads, [&](Index h, Index worker) {
      const Index key_head = h / (shape.query_heads / shape.key_heads);
      const auto head = []<class X>(const View<X>& x, Index n) {
        return HeadRows<X>{&x(0, n, 0, 0), x.strides()[2]};
      };
      eigen_attention<T>({shape.queries, shape.keys, shape.width, shape.value_width}, head(in.q, h),
                         head(in.k, key_head), head(in.v, key_head), head(out, h), causal,
                         rows(shape.queries), scratch.data<T>() + worker * slot / Index{sizeof(T)});
    });
  }
};

struct EigenSubject : Subject<EigenBaseline> {
  static constexpr bool kTrains = false;

  template <class D, class T>
  Error error(const D& data, const View<const T>& out, Index samples,
              const Rounding& rounding) const {
    const auto sees = [this](const fovea_test::Pair& p) { return !op.causal || p.j <= p.row; };
    return softmax_error(OracleOperator<T>::of({}, sees, data.inputs.q.width()), data.inputs, out,
                         samples, rounding);
  }
  void describe(Entry& entry) const {
    entry.attended_pairs = [own = op](const AttentionShape& s) { return own.attended_pairs(s); };
    entry.plan_stats = [own = op](const AttentionShape& s) {
      return stats_of(s, own.attended_pairs(s), s.query_heads * own.computed_pairs(s));
    };
    entry.causal = op.causal;
    // Beyond, it takes longer than all others together.
    entry.longest = op.block_rows == EigenBaseline::kWholeMatrix ? 2048 : 4096;
  }
};

Entry eigen_entry(Names names, const EigenBaseline& baseline, std::vector<Family> families) {
  return pass_entry(std::move(names), EigenSubject{{baseline}}, std::move(families));
}

/// Families of full attention, dense: every width that a kernel treats differently.
std::vector<Family> dense_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}}, {.width = 32, .lengths = {4096}},
          {.width = 80, .lengths = {4096}},           {.width = 128, .lengths = {2048}},
          {.scalar = Scalar::f64, .lengths = {2048}}, {.threads = 2, .lengths = {4096}}};
}

std::vector<Family> causal_families() {
  return {{.lengths = {512, 1024, 2048, 4096, 8192}},
          {.scalar = Scalar::f64, .lengths = {2048}},
          {.threads = 2, .lengths = {4096}},
          {.lengths = {16384}, .heads = 2, .key_heads = 2}};
}

/// One query after N keys: heads, one head, heads that share a key head, threads.
std::vector<Family> decode_families() {
  return {{.lengths = {4096, 32768}},
          {.lengths = {32768}, .heads = 1, .key_heads = 1},
          {.lengths = {32768}, .heads = 8, .key_heads = 1},
          {.threads = 2, .lengths = {32768}},
          {.threads = 2, .lengths = {32768}, .heads = 1, .key_heads = 1}};
}

std::vector<Family> option_families() { return {{.lengths = {4096}}}; }

std::vector<Family> backward_families() {
  return {{.lengths = {1024, 2048, 4096}},
          {.width = 128, .lengths = {2048}},
          {.scalar = Scalar::f64, .lengths = {2048}},
          {.threads = 2, .lengths = {4096}},
          {.lengths = {4096}, .heads = 1, .key_heads = 1},
          {.threads = 2, .lengths = {4096}, .heads = 1, .key_heads = 1}};
}

std::vector<Family> baseline_families() { return {{.lengths = {1024, 4096}}}; }

}  // namespace

std::vector<Entry> full_entries() {
  using fovea::FullAttention;
  // clang-format off
  return {
      softmax_entry({"full", "dense", "full"}, FullAttention{}, dense_families()),
      softmax_entry({"full", "causal", "full, causal"}, FullAttention{{.causal = true}}, causal_families()),
      softmax_entry({"full", "causal", "full, causal, training", Pass::training}, FullAttention{{.causal = true}}, {}),
      decode_entry({"full", "", "full, decoding"}, FullAttention{}, decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      extra_entry({"full", "bias", ""}, FullAttention{}, Extra::bias, option_families()),
      extra_entry({"full", "mask", ""}, FullAttention{}, Extra::mask, option_families()),
      extra_entry({"full", "alibi", ""}, FullAttention{}, Extra::alibi, option_families()),
      softmax_entry({"full", "soft_cap", ""}, FullAttention{{.soft_cap = 30}}, option_families()),
      softmax_entry({"full", "dense", "", Pass::backward}, FullAttention{}, backward_families()),
      softmax_entry({"full", "causal", "", Pass::backward}, FullAttention{{.causal = true}}, backward_families()),
      decode_entry<Eigen::bfloat16>({.op = "full", .storage = "bf16"}, FullAttention{}, {{.lengths = {32768}}}),
      decode_entry<Eigen::half>({.op = "full", .storage = "f16"}, FullAttention{}, {{.lengths = {32768}}}),
#endif
  };
  // clang-format on
}

std::vector<Entry> eigen_entries() {
  constexpr Index whole = EigenBaseline::kWholeMatrix;
  // clang-format off
  return {
      eigen_entry({"naive_eigen", "dense", "Eigen, naive"}, {whole, false}, baseline_families()),
      eigen_entry({"naive_eigen", "causal", "Eigen, naive, causal"}, {whole, true}, baseline_families()),
      eigen_entry({"blocked_eigen", "dense", "Eigen, blocked"}, {128, false}, baseline_families()),
      eigen_entry({"blocked_eigen", "causal", "Eigen, blocked, causal"}, {128, true}, baseline_families()),
  };
  // clang-format on
}

}  // namespace bench
