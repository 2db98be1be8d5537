// SPDX-License-Identifier: MIT
/// \file
/// An operator's description for fovea_bench and fovea_compare.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "bench/entries/stored.hpp"
#include "bench/reference/head_patterns.hpp"
#include "bench/reference/row_reference.hpp"
#include "fovea/attention/attention.hpp"
#include "fovea/core/thread_pool.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/patterns/window.hpp"

namespace bench {

using fovea::ThreadPool;

/// A pass that was made ready for some inputs and an output.
struct Prepared {
  std::function<void(ThreadPool&)> run;
  /// How far what the last run wrote is from the truth, on a sample; none: the row is not checked.
  std::function<Error(Index samples)> error;
  /// Bytes that a decoder holds, its keys and values among them.
  std::function<Index()> decoder_bytes = {};
  /// What fovea_bench runs in turns with `run`, to divide by its time.
  std::function<void(ThreadPool&)> other = {};
};

/// One pass of an operator for the scalar T.
template <class T>
struct Runner {
  /// The inputs and out must outlive what it returns.
  std::function<Prepared(const AllInputs<T>&, const View<T>& out)> prepare;
  /// Bytes of scratch with that many workers.
  std::function<Index(const AttentionShape&, Index workers)> workspace_bytes;
};

/// `make(double{})`, or none in a program that runs nothing in double and compiles no more than it
/// runs.
template <class F>
Runner<double> double_runner(const F& make) {
#if defined(FOVEA_BENCH_FLOAT_ONLY)
  static_cast<void>(make);
  return {};
#else
  return make(double{});
#endif
}

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

/// The far field of an operator: numbers of feature maps and of delta-rule terms.
struct FarWork {
  Index maps = 0;
  Index deltas = 0;

  /// Flops of the products with states [D, Dv]. A token of a key head is added to a state (under
  /// the delta rule it also reads it), and a row of a query head reads it.
  double forward(const AttentionShape& shape, Index tokens) const {
    return flops(shape, tokens, maps + 2 * deltas, maps + deltas);
  }

  /// The same of backward. Of a map: states again, d_state, and what q, k and v read of them. Of
  /// the delta rule: forward for a token again, d_state and its update, what the token's error
  /// reads of it, and what k reads of both.
  double backward(const AttentionShape& shape) const {
    return flops(shape, shape.keys, 3 * maps + 6 * deltas, 2 * (maps + deltas));
  }

 private:
  static double flops(const AttentionShape& shape, Index tokens, Index of_token, Index of_row) {
    const Index products =
        shape.key_heads * tokens * of_token + shape.query_heads * shape.queries * of_row;
    return 2.0 * static_cast<double>(shape.batch * shape.width * shape.value_width) *
           static_cast<double>(products);
  }
};

/// The sketch that chooses an operator's keys.
struct SketchWork {
  Index width = 0;  ///< d; 0: none
  bool causal = false;

  /// Flops of its logits: once for all heads.
  double flops(const AttentionShape& shape) const {
    const auto sequence = SequenceShape::of(shape.queries, shape.keys, {});
    const Index pairs = causal ? fovea::Causal{}.plan(sequence).attended_pairs()
                               : fovea::Dense{}.plan(sequence).attended_pairs();
    return 2.0 * static_cast<double>(shape.batch * width) * static_cast<double>(pairs);
  }
};

/// One pass of an operator with one choice of its options.
struct Entry {
  Names names;
  /// (query, key) pairs of all query heads that are visible to a softmax.
  std::function<Index(const AttentionShape&)> attended_pairs;
  Runner<float> f32;
  Runner<double> f64;
  std::vector<Family> families;
  /// Visible and computed pairs of all query heads; empty: not counted.
  std::function<PlanStats(const AttentionShape&)> plan_stats = {};
  FarWork far_field = {};
  SketchWork sketch = {};
  std::string other = {};                             ///< what Prepared::other is, if it is there
  Index longest = std::numeric_limits<Index>::max();  ///< of the lengths that are compared
  bool causal = false;                                ///< no row sees a later key
  /// Why it cannot run on inputs of a shape; none, or nothing: it can.
  std::function<std::string(const AttentionShape&)> obstacle = {};
  /// All flops of a pass, where there are no pairs.
  std::function<double(const AttentionShape&)> own_flops = {};
  /// The same pass on tensors of 16 bits: inputs are floats that are representable in the type, and
  /// out is converted from the stored result when the error is computed. Empty: the operator does
  /// not support them.
  Runner<float> f16 = {};
  Runner<float> bf16 = {};

  template <class T>
  const Runner<T>& runner() const {
    if constexpr (std::is_same_v<T, float>) return f32;
    if constexpr (std::is_same_v<T, double>) return f64;
  }

  /// Query rows of one pass over n keys.
  Index queries(Index n) const { return names.pass == Pass::decode ? 1 : n; }

  /// Flops of the matrix products of a pass, all heads. Forward: 2 of the visible pairs, and those
  /// of the far field and of the sketch; backward has 5 of the visible pairs.
  double flops(const AttentionShape& shape) const {
    if (own_flops) return own_flops(shape);
    const fovea::FlopCount count{shape.width, shape.value_width};
    const Index pairs = attended_pairs(shape) * shape.batch;
    double sum = 0;
    if (names.pass != Pass::backward && names.pass != Pass::plan) {
      const Index tokens = names.pass == Pass::decode ? 1 : shape.keys;
      sum += count.forward(pairs) + far_field.forward(shape, tokens) + sketch.flops(shape);
    }
    if (names.pass == Pass::backward || names.pass == Pass::training) {
      sum += count.backward(pairs) + far_field.backward(shape);
    }
    return sum;
  }
};

/// Gives an entry `make(float{}, S{})` for both types of 16 bits, in a program that runs them.
template <class F>
void add_stored_runners(Entry& entry, const F& make) {
#if defined(FOVEA_BENCH_HALF)
  entry.f16 = make(float{}, Eigen::half{});
  entry.bf16 = make(float{}, Eigen::bfloat16{});
#else
  static_cast<void>(entry);
  static_cast<void>(make);
#endif
}

/// The last rows of q, and all of k and v, seen as a pass reads them.
template <class T>
AllInputs<T> last_rows(const AllInputs<T>& in, Index rows) {
  const Shape shape = {in.q.batch(), in.q.heads(), rows, in.q.width()};
  AllInputs<T> last = in;
  last.q =
      View<const T>(in.q.data() + (in.q.rows() - rows) * in.q.strides()[2], shape, in.q.strides());
  return last;
}

}  // namespace bench
