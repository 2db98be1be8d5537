// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of linear, delta-rule and FMM attention across ranks.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/distributed/linear/delta_gradients_scan.hpp"
#include "fovea/distributed/linear/far_field.hpp"
#include "fovea/distributed/linear/near_field_backward.hpp"
#include "fovea/distributed/linear/open_chunk.hpp"
#include "fovea/distributed/linear/sum_gradients.hpp"
#include "fovea/distributed/messages/pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Whether the call writes gradients of the blend logits.
template <class T>
bool wants_logits(const LinearFamilyGrads<T>& grads) {
  return !grads.near_logits.empty() || !grads.far_logits.empty();
}

/// Whether a call saved the near field.
template <class Saved>
bool is_near_saved(const Saved& saved) {
  if constexpr (requires { saved.near_out; }) {
    return !saved.near_out.empty() && !saved.near_lse.empty();
  }
  return false;
}

}  // namespace detail

/// One backward pass: the near field, if any, writes gradients, and the far field adds to them.
/// \tparam Passes a LinearBackwardPasses or FmmBackwardPasses; PerformerBackwardPasses have a
/// specialisation
template <class Passes>
class LinearBackwardPass final : public RankPass {
 public:
  /// The tensors' scalar type.
  using T = typename Passes::Scalar;
  /// The settings read from the operator.
  using Settings = typename Passes::Settings;

  /// Allocates all memory.
  /// \param of the FarFieldBackwardCall, checked; all ranks saved the near field, or none
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Call>
  LinearBackwardPass(const Call& of, const ExecutorRef& executor)
      : inputs_(of.inputs),
        d_out_(of.d_out),
        grads_(of.grads),
        weights_(of.op.weights(inputs_)),
        segments_(of.rows, inputs_.q.batch(), sizes_read(inputs_), sizes_made(inputs_),
                  Settings::kHasNear, shared_rows(of.op, inputs_, of.rows.count())),
        call_(whole_inputs(), of.op.far_field, weights_, segments_.read(kGradOfOut),
              whole_grads()) {
    bool wants_products = false;  // of the far field, found by its backward pass
    if constexpr (Settings::kHasNear) {
      const FmmBlend<T> blend = of.op.blend(inputs_);
      const bool wants_logits = detail::wants_logits(grads_);
      wants_products = wants_logits && blend.is_same_for_columns();
      if (wants_logits) blend_.emplace(blend, d_out_, of.rows);
      if (wants_logits && !wants_products) {
        far_out_ = ScratchTensor<T>(d_out_.shape(), memory_of(executor));
        far_ = far_field_pass(inputs_, of.op.far_field, unweighted_, false, far_out_.view(),
                              of.rows, executor);
      }
      near_.emplace(of, detail::is_near_saved(of.saved), weights_, executor);
    }
    const Communicator& ranks = of.rows.ranks();
    if constexpr (Field::kHasSums) {
      if (call_.far_field.causal) {
        scan_.emplace(call_, segments_, ranks, Settings::kHasNear, wants_products, executor);
      } else {
        totals_.emplace(call_, segments_, ranks, Settings::kHasNear, wants_products, executor);
      }
    }
    if constexpr (Field::kHasDelta) {
      delta_.emplace(call_, segments_, ranks, Settings::kHasNear || Field::kHasSums, wants_products,
                     executor);
    }
  }

  /// Writes the gradients of this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::exception_ptr error;
    const auto keep = [&](const std::exception_ptr& later) {
      if (!error) error = later;
    };
    const auto then = [&](auto& part) {
      if (part) keep(part->run(executor));
    };
    if constexpr (Settings::kHasNear) {
      then(near_);
      if (blend_) keep(blend_->add_near(near_->out(), executor));
      then(far_);
      if (far_) keep(blend_->add_far(far_out_.view(), executor));
    }
    put_rows();
    segments_.bring();
    if constexpr (Field::kHasSums) then(scan_);
    if constexpr (Field::kHasSums) then(totals_);
    if constexpr (Field::kHasDelta) then(delta_);
    segments_.bring_back();
    if (!error) write();
    return error;
  }

 private:
  using Field = typename Settings::Far;
  using Sizes = typename SegmentRows<T>::Sizes;
  /// The tensors read. Gradients are computed for the first three, and for beta.
  enum : std::size_t { kQ, kK, kV, kGradOfOut, kBeta };
  static constexpr std::size_t kGradOfBeta = kV + 1;

  static Sizes sizes_read(const LinearFamilyInputs<T>& in) {
    Sizes sizes = {{in.q.heads(), in.q.width()},
                   {in.k.heads(), in.k.width()},
                   {in.v.heads(), in.v.width()},
                   {in.q.heads(), in.v.width()}};
    if (Field::kHasDelta) sizes.emplace_back(in.k.heads(), 1);
    return sizes;
  }
  static Sizes sizes_made(const LinearFamilyInputs<T>& in) {
    Sizes sizes = sizes_read(in);
    sizes.erase(sizes.begin() + kGradOfOut);
    return sizes;
  }

  /// Rows that later rows read, too: open chunks. A rank reads those that its rows depend on.
  static auto shared_rows(const Settings& op, const LinearFamilyInputs<T>& in, Index rows) {
    RowSet shared(rows);
    if (op.far_field.causal) {
      for (const Index length : in.key_lengths) shared.add(open_chunk(length));
    }
    return [all = shared.ranges()](const std::vector<Range>& summed) {
      return summed.empty() ? std::vector<Range>{} : up_to(summed.back().end, all);
    };
  }
  static std::vector<Range> up_to(Index end, const std::vector<Range>& ranges) {
    std::vector<Range> found;
    for (const Range& range : ranges) {
      if (range.begin < end) found.push_back(range);
    }
    return found;
  }

  LinearFamilyInputs<T> whole_inputs() const {
    LinearFamilyInputs<T> whole = inputs_;
    whole.q = segments_.read(kQ);
    whole.k = segments_.read(kK);
    whole.v = segments_.read(kV);
    if (Field::kHasDelta) whole.beta = segments_.read(kBeta);
    return whole;
  }
  LinearFamilyGrads<T> whole_grads() const {
    LinearFamilyGrads<T> whole;
    whole.q = segments_.made(kQ);
    whole.k = segments_.made(kK);
    whole.v = segments_.made(kV);
    if (Field::kHasDelta) whole.beta = segments_.made(kGradOfBeta);
    return whole;
  }

  void put_rows() const {
    segments_.put(kQ, inputs_.q);
    segments_.put(kK, inputs_.k);
    segments_.put(kV, inputs_.v);
    segments_.put(kGradOfOut, d_out_);
    if (Field::kHasDelta) segments_.put(kBeta, inputs_.beta);
    if (!Settings::kHasNear) return;
    segments_.give(kQ, grads_.q);
    segments_.give(kK, grads_.k);
    segments_.give(kV, grads_.v);
  }

  void write() {
    segments_.take(kQ, grads_.q);
    segments_.take(kK, grads_.k);
    segments_.take(kV, grads_.v);
    if (Field::kHasDelta) segments_.take(kGradOfBeta, grads_.beta);
    if constexpr (Settings::kHasNear) {
      if (blend_) blend_->write(products(), grads_);
    }
  }
  /// The sums over batch and rows of <weight d_out_i, far_i>, [Hq], if computed.
  std::vector<double> products() {
    std::vector<double> sums(static_cast<std::size_t>(inputs_.q.heads()));
    if (far_) return sums;
    if constexpr (Field::kHasSums) sums = scan_ ? scan_->products() : totals_->products();
    if constexpr (Field::kHasDelta) delta_->add_products(sums);
    return sums;
  }

  const LinearFamilyInputs<T>& inputs_;
  const View<const T>& d_out_;
  const LinearFamilyGrads<T>& grads_;
  FarWeights<T> weights_;
  SegmentRows<T> segments_;
  LinearBackwardCall<T, Field> call_;
  /// A placeholder for a part that the operator lacks.
  struct None {};
  template <bool kHas, class Part>
  using If = std::optional<std::conditional_t<kHas, Part, None>>;
  If<Settings::kHasNear, NearFieldBackward<T>> near_;
  If<Settings::kHasNear, BlendGradients<T>> blend_;
  // The unweighted far field again, if the columns of a blend have separate logits.
  FarWeights<T> unweighted_;
  ScratchTensor<T> far_out_;  // [B, Hq, own rows, Dv]
  std::unique_ptr<RankPass> far_;
  If<Field::kHasSums, SumGradientsScan<T, Field>> scan_;
  If<Field::kHasSums, SumGradientsTotals<T, Field>> totals_;
  If<Field::kHasDelta, DeltaGradientsScan<T, Field>> delta_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
