// SPDX-License-Identifier: MIT
/// \file
/// Entries for comparison with a sparse operator: full attention with a mask, as in frameworks
/// without its kernels, and only the construction of its plans.
#pragma once

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/softmax_entry.hpp"
#include "fovea/attention/full.hpp"

namespace bench {

/// One head of a tensor.
template <class T>
View<T> head_of(const View<T>& x, Index h) {
  const Shape shape = {1, 1, x.rows(), x.width()};
  return View<T>(x.data() + h * x.strides()[1], shape, x.strides());
}

/// The masks [queries, keys] of the patterns of an operator.
template <class Op>
std::vector<std::unique_ptr<bool[]>> masks_of(const Op& op, const AttentionShape& shape) {
  const SequenceShape sequence = sequence_shape(op, shape);
  std::vector<std::unique_ptr<bool[]>> masks;
  for (Index n = 0; n < pattern_count(op, shape.query_heads); ++n) {
    masks.push_back(mask_of(op.pattern(n, sequence), sequence));
  }
  return masks;
}

/// Full attention with a mask for each head, one head after the other.
struct MaskedHeads {
  std::vector<std::unique_ptr<bool[]>> masks;

  template <class T>
  void forward(const AllInputs<T>& in, const View<T>& out, ThreadPool& pool) const {
    for (Index h = 0; h < in.q.heads(); ++h) {
      const Index key_head = h / (in.q.heads() / in.k.heads());
      AllInputs<T> one{head_of(in.q, h), head_of(in.k, key_head), head_of(in.v, key_head)};
      one.mask = View<const bool>(masks[static_cast<std::size_t>(h) % masks.size()].get(),
                                  {1, 1, in.q.rows(), in.k.rows()});
      fovea::FullAttention{}.forward(one, head_of(out, h), pool);
    }
  }
};

/// Forward passes of full attention with a mask that shows what `op` shows: every pair is computed,
/// then masked. Heads with the same pattern share a mask. Its truth is that of `op`.
template <class Op>
Entry dense_mask_entry(Names names, const Op& op, std::vector<Family> families) {
  names.pass = Pass::dense_mask;
  const auto runner = [&]<class T, class S = T>(T, S = S{}) {
    const auto prepare = [op](const AllInputs<T>& in, const View<T>& out) {
      const auto call = std::make_shared<const StoredCall<S, T>>(in, out);
      const auto masked =
          std::make_shared<const MaskedHeads>(MaskedHeads{masks_of(op, fovea::shape_of(in))});
      return Prepared{[=](ThreadPool& pool) { masked->forward(call->inputs, call->out, pool); },
                      [=](Index samples) {
                        call->widen();
                        return softmax_error<T>(softmax_oracle(op, in), in, out, samples,
                                                rounding_to<S, T>());
                      }};
    };
    return Runner<T>{prepare, [op](const AttentionShape& shape, Index workers) {
                       return fovea::FullAttention{}.workspace_bytes<S>(shape, workers) +
                              pattern_count(op, shape.query_heads) * shape.queries * shape.keys;
                     }};
  };
  Entry entry = entry_of(std::move(names), SoftmaxSubject<Op>{{op}}, std::move(families));
  entry.plan_stats = [op](const AttentionShape& shape) {
    return stats_of(shape, attended_pairs(op, shape),
                    shape.query_heads * shape.queries * shape.keys);
  };
  entry.f32 = runner(float{});
  entry.f64 = double_runner(runner);
  add_stored_runners(entry, runner);
  return entry;
}

/// Builds what a forward pass of `op` builds of its plans: every block of every head.
template <class Op>
Entry plan_entry(Names names, const Op& op, std::vector<Family> families) {
  names.pass = Pass::plan;
  const auto runner = [&]<class T>(T) {
    const auto prepare = [op](const AllInputs<T>& in, const View<T>&) {
      const AttentionShape shape = fovea::shape_of(in);
      const auto keys = std::make_shared<Index>(0);
      return Prepared{[=](ThreadPool&) { *keys = built_keys(op, shape); },
                      [=](Index) {
                        const bool right = built_pairs(op, shape) == attended_pairs(op, shape);
                        constexpr double infinity = std::numeric_limits<double>::infinity();
                        return right ? Error{} : Error{infinity, infinity};
                      }};
    };
    return Runner<T>{prepare, [](const AttentionShape&, Index) { return Index{0}; }};
  };
  Entry entry = entry_of(std::move(names), SoftmaxSubject<Op>{{op}}, std::move(families));
  entry.f32 = runner(float{});
  entry.f64 = double_runner(runner);
  return entry;
}

}  // namespace bench
