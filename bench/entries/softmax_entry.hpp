// SPDX-License-Identifier: MIT
/// \file
/// Entries of the softmax operators, and of their optional inputs.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/entries/pass_entry.hpp"
#include "bench/reference/gradient_reference.hpp"

namespace bench {

/// What the heads of an operator see, `op.pattern(head, shape)`, for the oracles.
template <class Op>
fovea_test::ReferenceMask reference_mask(const Op& op, const AttentionShape& shape) {
  const SequenceShape sequence = sequence_shape(op, shape);
  std::vector<decltype(op.pattern(0, sequence))> patterns;
  for (Index h = 0; h < shape.query_heads; ++h) patterns.push_back(op.pattern(h, sequence));
  return
      [patterns = std::move(patterns), first = sequence.first_position](const fovea_test::Pair& p) {
        return patterns[static_cast<std::size_t>(p.h)].allows(p.row + first, p.j);
      };
}

/// The truth of an operator that is a softmax over its patterns, with its options and the optional
/// inputs of a call.
template <class T, class Op>
OracleOperator<T> softmax_oracle(const Op& op, const AllInputs<T>& in) {
  return OracleOperator<T>::of(op.softmax_options(), reference_mask(op, fovea::shape_of(in)),
                               in.q.width());
}

/// An operator of patterns.
template <class O>
struct SoftmaxSubject : Subject<O> {
  static constexpr bool kIn16Bits = fovea::Attention<O, Eigen::half>;

  template <class D, class T>
  Error error(const D& data, const View<const T>& out, Index samples,
              const Rounding& rounding) const {
    return softmax_error(softmax_oracle(this->op, data.inputs), data.inputs, out, samples,
                         rounding);
  }
  template <class D, class T>
  Error gradient_error(const D& data, const View<const T>& d_out, const AllGrads<T>& grads,
                       Index samples) const {
    return softmax_gradient_error(reference_mask(this->op, fovea::shape_of(data.inputs)),
                                  data.inputs, d_out, grads, samples);
  }
  void describe(Entry& entry) const {
    entry.attended_pairs = [op = this->op](const AttentionShape& shape) {
      return attended_pairs(op, shape);
    };
    entry.causal = is_causal(this->op);
    if (entry.names.pass == Pass::decode) return;
    entry.plan_stats = [op = this->op](const AttentionShape& shape) {
      return plan_stats(op, shape);
    };
  }
};

/// Forward passes, backward ones with the forward pass before, or both.
template <class Op>
Entry softmax_entry(Names names, const Op& op, std::vector<Family> families) {
  return pass_entry(std::move(names), SoftmaxSubject<Op>{{op}}, std::move(families));
}

/// An operator's optional inputs besides q, k and v.
enum class Extra { bias, mask, alibi };

/// The tensor of an extra for some inputs: bias and mask are [1, 1, Nq, Nk], one in eight pairs
/// hidden.
template <class T>
struct ExtraTensor {
  ExtraTensor(Extra extra, AllInputs<T>& in) {
    const Shape shape = {1, 1, in.q.rows(), in.k.rows()};
    const Index size = shape[2] * shape[3];
    if (extra == Extra::bias) {
      numbers = gaussians<T>(3, 0, size);
      in.bias = View<const T>(numbers.data(), shape);
    } else if (extra == Extra::mask) {
      flags = std::make_unique<bool[]>(static_cast<std::size_t>(size));
      for (Index i = 0; i < size; ++i) flags[static_cast<std::size_t>(i)] = (i * 37 >> 3) % 8 != 0;
      in.mask = View<const bool>(flags.get(), shape);
    } else {
      for (Index h = 0; h < in.q.heads(); ++h) {
        numbers.push_back(static_cast<T>(std::exp2(-static_cast<double>(h + 1))));
      }
      in.alibi_slopes = numbers;
    }
  }

  std::vector<T> numbers;
  std::unique_ptr<bool[]> flags;
};

/// Forward passes with an extra.
template <class Op>
Entry extra_entry(Names names, const Op& op, Extra extra, std::vector<Family> families) {
  Entry entry = softmax_entry(std::move(names), op, std::move(families));
  const auto with_extra = [extra]<class T>(Runner<T>& runner) {
    runner.prepare = [plain = runner.prepare, extra](const AllInputs<T>& in, const View<T>& out) {
      AllInputs<T> more = in;
      const auto tensor = std::make_shared<ExtraTensor<T>>(extra, more);
      const Prepared pass = plain(more, out);
      return Prepared{[tensor, pass](ThreadPool& pool) { pass.run(pool); }, pass.error};
    };
  };
  with_extra(entry.f32);
  if (entry.f64.prepare) with_extra(entry.f64);
  return entry;
}

}  // namespace bench
