// SPDX-License-Identifier: MIT
/// \file
/// What fovea_bench and fovea_compare know of an operator, and how an entry is made of one.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bench/eigen_attention.hpp"
#include "bench/row_reference.hpp"
#include "fovea/attention/attention.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/core/workspace.hpp"

namespace bench {

using fovea::AttentionShape;
using fovea::Shape;
using fovea::ThreadPool;

/// A pass that was made ready for some inputs and an output.
struct Prepared {
  std::function<void(ThreadPool&)> run;
  /// How far what the last run wrote is from the truth, on a sample.
  std::function<Error(Index samples)> error;
  /// Bytes of scratch of the last run, where only the run can tell.
  std::function<Index()> scratch_bytes = {};
};

/// One pass of an operator for the scalar T.
template <class T>
struct Runner {
  /// The inputs and out must outlive what it returns.
  std::function<Prepared(const Inputs<T>&, const View<T>& out)> prepare;
  /// Bytes of scratch with that many workers.
  std::function<Index(const AttentionShape&, Index workers)> workspace_bytes;
};

enum class Scalar { f32, f64 };

/// One family of benchmarks: a line of a plot.
struct Family {
  Scalar scalar = Scalar::f32;
  Index width = 64;  ///< D = Dv
  int threads = 1;
  std::vector<Index> lengths;  ///< N
  Index heads = 8;
  Index key_heads = 8;
};

/// What one pass does.
enum class Pass {
  forward,
  backward,  ///< after a forward pass that is not timed
  training,  ///< forward and backward
  decode,    ///< one query after N keys
};

constexpr const char* name(Pass pass) {
  constexpr const char* names[] = {"forward", "backward", "training", "decode"};
  return names[static_cast<int>(pass)];
}

/// How an operator is called.
struct Names {
  std::string op;            ///< first part of a benchmark's name: "full"
  std::string variant = {};  ///< its options: "causal"
  std::string label = {};    ///< in fovea_compare; empty: not there
  Pass pass = Pass::forward;
  std::string storage = {};  ///< the type of the tensors, where it is not that of the arithmetic
};

/// One pass of an operator with one choice of its options.
struct Entry {
  Names names;
  /// (query, key) pairs of one head that are visible.
  std::function<Index(const AttentionShape&)> visible_pairs;
  Runner<float> f32;
  Runner<double> f64;
  std::vector<Family> families;

  template <class T>
  const Runner<T>& runner() const {
    if constexpr (std::is_same_v<T, float>) return f32;
    if constexpr (std::is_same_v<T, double>) return f64;
  }

  /// Query rows of one pass over n keys.
  Index queries(Index n) const { return names.pass == Pass::decode ? 1 : n; }

  /// Flops of the matrix products of the visible pairs, all heads: 2 of them forward, 5 backward.
  double flops(const AttentionShape& shape) const {
    const auto d = static_cast<double>(shape.width);
    const auto dv = static_cast<double>(shape.value_width);
    const double forward = names.pass == Pass::backward ? 0 : 2 * (d + dv);
    const bool has_backward = names.pass == Pass::backward || names.pass == Pass::training;
    const double backward = has_backward ? 2 * (3 * d + 2 * dv) : 0;
    return (forward + backward) * static_cast<double>(visible_pairs(shape)) *
           static_cast<double>(shape.query_heads * shape.batch);
  }
};

/// The last rows of q, and all of k and v, seen as a pass reads them.
template <class T>
Inputs<T> last_rows(const Inputs<T>& in, Index rows) {
  const Shape shape = {in.q.batch(), in.q.heads(), rows, in.q.width()};
  Inputs<T> last = in;
  last.q =
      View<const T>(in.q.data() + (in.q.rows() - rows) * in.q.strides()[2], shape, in.q.strides());
  return last;
}

/// Forward passes of an operator of the library, or of anything that has its calls.
/// `reference(inputs, head, row)` is its truth for float and double.
template <class Op, class Reference>
Entry operator_entry(Names names, const Op& op, const Reference& reference,
                     std::vector<Family> families) {
  const auto runner = [&]<class T>(T) {
    return Runner<T>{[op, reference](const Inputs<T>& in, const View<T>& out) {
                       return Prepared{
                           [op, in, out](ThreadPool& pool) { op.forward(in, out, pool); },
                           [in, out, reference](Index samples) {
                             return sampled_error<T>(in, out, samples, reference);
                           }};
                     },
                     [op](const AttentionShape& shape, Index workers) {
                       return op.template workspace_bytes<T>(shape, workers);
                     }};
  };
  return {std::move(names), [op](const AttentionShape& shape) { return op.visible_pairs(shape); },
          runner(float{}), runner(double{}), std::move(families)};
}

/// Softmax attention with Eigen's matrices in blocks of query rows; see eigen_attention.hpp.
struct EigenBaseline {
  static constexpr Index kWholeMatrix = 0;

  Index block_rows = kWholeMatrix;
  bool causal = false;

  Index rows(Index n) const { return block_rows == kWholeMatrix ? n : std::min(block_rows, n); }

  template <class T>
  Index workspace_bytes(const AttentionShape& shape, Index workers) const {
    return workers * rows(shape.queries) * (shape.keys + 1) * Index{sizeof(T)};
  }

  Index visible_pairs(const AttentionShape& shape) const {
    const Index n = shape.queries;
    return causal ? n * (n + 1) / 2 : n * n;
  }

  /// Heads are shared out over the threads.
  template <class T>
  void forward(const Inputs<T>& in, const View<T>& out, ThreadPool& pool) const {
    const AttentionShape shape = fovea::shape_of(in);
    const Index workers = fovea::worker_count(pool, shape.query_heads);
    const Index slot = workspace_bytes<T>(shape, 1);
    fovea::Workspace scratch(workers, slot);
    fovea::for_each_task(pool, shape.query_heads, [&](Index h, Index worker) {
      const Index key_head = h / (shape.query_heads / shape.key_heads);
      const EigenHead<T> head{&in.q(0, h, 0, 0),
                              &in.k(0, key_head, 0, 0),
                              &in.v(0, key_head, 0, 0),
                              &out(0, h, 0, 0),
                              shape.queries,
                              shape.width,
                              shape.value_width,
                              in.q.strides()[2],
                              in.k.strides()[2],
                              in.v.strides()[2],
                              out.strides()[2],
                              causal};
      eigen_attention(head, rows(shape.queries),
                      scratch.data<T>() + worker * slot / Index{sizeof(T)});
    });
  }
};

inline Entry eigen_entry(Names names, const EigenBaseline& baseline, std::vector<Family> families) {
  const auto reference = [causal = baseline.causal]<class T>(const Inputs<T>& in, Index head,
                                                             Index row) {
    return softmax_row(in, head, row, [&](Index j) { return !causal || j <= row; });
  };
  return operator_entry(std::move(names), baseline, reference, std::move(families));
}

}  // namespace bench
