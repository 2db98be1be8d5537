// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of linear, delta-rule and FMM attention over a sequence that is spread over
/// ranks. What travels is states and sums of a fixed size; rows where ranges end within a segment
/// of kLinearSegment rows; and for a near field the margins of rows.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/distributed/linear/blend_gradients.hpp"
#include "fovea/distributed/linear/delta_gradients_chain.hpp"
#include "fovea/distributed/linear/near_field_backward.hpp"
#include "fovea/distributed/linear/open_chunk.hpp"
#include "fovea/distributed/linear/sum_gradients_chain.hpp"
#include "fovea/distributed/linear/sum_gradients_totals.hpp"
#include "fovea/distributed/linear/unweighted_far_field.hpp"
#include "fovea/distributed/linear_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// Whether gradients of the logits of a blend are asked for.
template <class T>
bool wants_logits(const LinearFamilyGrads<T>& grads) {
  return !grads.near_logits.is_none() || !grads.far_logits.is_none();
}

/// Which gradients of the logits of a blend are asked for, in words.
template <class Op, class T>
const char* logits_text(const Op& op, const LinearFamilyInputs<T>& in,
                        const LinearFamilyGrads<T>& grads) {
  if constexpr (Op::kHasNear) {
    if (!wants_logits(grads)) return "";
    return op.template settings<T>().blend(in).is_same_for_columns()
               ? ", gradients of logits"
               : ", gradients of logits of columns";
  }
  return "";
}

}  // namespace detail

/// One backward pass: the near field, if there is one, writes gradients to which the far field
/// adds.
template <class Op, class T>
class LinearBackwardPass {
 public:
  /// Takes all memory.
  /// \param inputs, saved, d_out, grads those of this rank, checked
  /// \param is_saved whether `saved` holds the near field, on all ranks
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  LinearBackwardPass(const Op& op, const LinearFamilyInputs<T>& inputs, const SavedOf<Op, T>& saved,
                     bool is_saved, const View<const T>& d_out, const LinearFamilyGrads<T>& grads,
                     const Rows& rows, const ExecutorRef& executor)
      : inputs_(inputs),
        d_out_(d_out),
        grads_(grads),
        weights_(op.template settings<T>().weights(inputs)),
        segments_(rows, inputs.q.batch(), sizes_read(inputs), sizes_made(inputs), Op::kHasNear,
                  shared_rows(op, inputs, rows.count())),
        call_(whole_inputs(), op.template far<T>(), weights_, segments_.read(kGradOfOut),
              whole_grads()) {
    bool wants_products = false;  // of the far field, which its own backward pass finds
    if constexpr (Op::kHasNear) {
      const FmmBlend<T> blend = op.template settings<T>().blend(inputs_);
      const bool wants_logits = detail::wants_logits(grads);
      wants_products = wants_logits && blend.is_same_for_columns();
      if (wants_logits) blend_.emplace(blend, d_out, rows);
      if (wants_logits && !wants_products) {
        far_.emplace(inputs_, op.template far<T>(), d_out, rows, executor);
      }
      near_.emplace(op.near(), inputs, saved, is_saved, d_out, weights_, grads, rows, executor);
    }
    if constexpr (Field::kHasSums) {
      if (call_.far.causal) {
        chain_.emplace(call_, segments_, rows.ranks(), Op::kHasNear, wants_products, executor);
      } else {
        totals_.emplace(call_, segments_, rows.ranks(), Op::kHasNear, wants_products, executor);
      }
    }
    if constexpr (Field::kHasDelta) {
      delta_.emplace(call_, segments_, rows.ranks(), Op::kHasNear || Field::kHasSums,
                     wants_products, executor);
    }
  }
  LinearBackwardPass(const LinearBackwardPass&) = delete;
  LinearBackwardPass& operator=(const LinearBackwardPass&) = delete;

  /// The messages of this rank.
  Traffic traffic() const {
    Traffic all = segments_.traffic();
    const auto add = [&](const auto& part) {
      if (part) all = all + part->traffic();
    };
    if constexpr (Op::kHasNear) add(near_);
    if constexpr (Op::kHasNear) add(blend_);
    if constexpr (Op::kHasNear) add(far_);
    if constexpr (Field::kHasSums) add(chain_);
    if constexpr (Field::kHasSums) add(totals_);
    if constexpr (Field::kHasDelta) add(delta_);
    return all;
  }

  /// Writes the gradients of this rank's rows. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    std::exception_ptr error;
    const auto keep = [&](const std::exception_ptr& later) {
      if (!error) error = later;
    };
    const auto then = [&](auto& part) {
      if (part) keep(part->run(executor));
    };
    if constexpr (Op::kHasNear) {
      then(near_);
      if (blend_) keep(blend_->add_near(near_->out(), executor));
      then(far_);
      if (far_) keep(blend_->add_far(far_->out(), executor));
    }
    put_rows();
    segments_.bring();
    if constexpr (Field::kHasSums) then(chain_);
    if constexpr (Field::kHasSums) then(totals_);
    if constexpr (Field::kHasDelta) then(delta_);
    segments_.bring_back();
    if (!error) write();
    return error;
  }

 private:
  using Field = std::remove_cvref_t<decltype(std::declval<const Op&>().template far<T>())>;
  using Sizes = typename SegmentRows<T>::Sizes;
  /// The tensors that are read. The gradients that are made are those of the first three, and of
  /// beta.
  enum : std::size_t { kQ, kK, kV, kGradOfOut, kBeta };
  static constexpr std::size_t kGradOfBeta = kV + 1;

  static Sizes sizes_read(const LinearFamilyInputs<T>& in) {
    Sizes sizes = {{in.q.heads(), in.q.width()},
                   {in.k.heads(), in.k.width()},
                   {in.v.heads(), in.v.width()},
                   {in.q.heads(), in.v.width()}};
    if (Op::kHasBeta) sizes.emplace_back(in.k.heads(), 1);
    return sizes;
  }
  static Sizes sizes_made(const LinearFamilyInputs<T>& in) {
    Sizes sizes = sizes_read(in);
    sizes.erase(sizes.begin() + kGradOfOut);
    return sizes;
  }

  /// Rows that those behind them read, too: open chunks. A rank reads those that its rows reach.
  static auto shared_rows(const Op& op, const LinearFamilyInputs<T>& in, Index rows) {
    RowSet shared(rows);
    if (op.template far<T>().causal) {
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
    if (Op::kHasBeta) whole.beta = segments_.read(kBeta);
    return whole;
  }
  LinearFamilyGrads<T> whole_grads() const {
    LinearFamilyGrads<T> whole;
    whole.q = segments_.made(kQ);
    whole.k = segments_.made(kK);
    whole.v = segments_.made(kV);
    if (Op::kHasBeta) whole.beta = segments_.made(kGradOfBeta);
    return whole;
  }

  void put_rows() const {
    segments_.put(kQ, inputs_.q);
    segments_.put(kK, inputs_.k);
    segments_.put(kV, inputs_.v);
    segments_.put(kGradOfOut, d_out_);
    if (Op::kHasBeta) segments_.put(kBeta, inputs_.beta);
    if (!Op::kHasNear) return;
    segments_.give(kQ, grads_.q);
    segments_.give(kK, grads_.k);
    segments_.give(kV, grads_.v);
  }

  void write() {
    segments_.take(kQ, grads_.q);
    segments_.take(kK, grads_.k);
    segments_.take(kV, grads_.v);
    if (Op::kHasBeta) segments_.take(kGradOfBeta, grads_.beta);
    if constexpr (Op::kHasNear) {
      if (blend_) blend_->write(products(), grads_);
    }
  }
  /// The sums over batch and rows of <weight d_out_i, far_i>, [Hq], if they were found.
  std::vector<double> products() {
    std::vector<double> sums(static_cast<std::size_t>(inputs_.q.heads()));
    if (far_) return sums;
    if constexpr (Field::kHasSums) sums = chain_ ? chain_->products() : totals_->products();
    if constexpr (Field::kHasDelta) delta_->add_products(sums);
    return sums;
  }

  LinearFamilyInputs<T> inputs_;
  View<const T> d_out_;
  LinearFamilyGrads<T> grads_;
  FarWeights<T> weights_;
  SegmentRows<T> segments_;
  LinearBackwardCall<T, Field> call_;
  /// Stands for a part that the operator does not have.
  struct None {};
  template <bool kHas, class Part>
  using If = std::optional<std::conditional_t<kHas, Part, None>>;
  If<Op::kHasNear, NearFieldBackward<T>> near_;
  If<Op::kHasNear, BlendGradients<T>> blend_;
  If<Op::kHasNear, UnweightedFarField<T, Field>> far_;  // if its columns have logits of their own
  If<Field::kHasSums, SumGradientsChain<T, Field>> chain_;
  If<Field::kHasSums, SumGradientsTotals<T, Field>> totals_;
  If<Field::kHasDelta, DeltaGradientsChain<T, Field>> delta_;
};

/// Computes the gradients of linear, delta-rule or FMM attention over a sequence that is spread
/// over ranks, on all of them together. The bits are those of `op.backward` over the whole
/// sequence. \param op, inputs as in `forward` \param out [B, Hq, own rows, Dv] as `forward` wrote
/// it \param saved as `forward` wrote it; the near field is computed again unless all ranks have
/// both \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out \param
/// grads of q, k, v and beta, of this rank's rows: those that have a tensor are written; the ranks
/// may want different ones. Gradients of the blend's logits, which all or none want, are those of
/// the whole sequence \param executor as in `forward` \returns the messages of this rank \throws as
/// `forward`
///
/// Cost: that of the rank's rows. If causal, a state for each key head and map is sent at each end
/// of a range of rows, upwards and then downwards. If not, sums of the rank's segments are sent and
/// totals received, of tokens and then of rows. Rows of segments that lie on several ranks travel
/// to that of their first row, and their gradients back. Gradients of logits that differ between
/// columns take the forward pass of the far field once more.
/// Memory: the rank's rows twice, and states or sums; for such logits another output of the rank's
/// rows; with a delta rule also about (D Dv /
/// kDeltaChunk + Dv + kDeltaChunk) numbers for each of its tokens and key heads.
template <class Op, class Out, class D, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic backward(const Op& op, const InputsOf<Op, T>& inputs,
                                                   const Out& out, const SavedOf<Op, T>& saved,
                                                   const D& d_out, const GradsOf<Op, T>& grads,
                                                   const Rows& rows, E&& executor = {}) {
  const View<const T> from(out);
  const View<const T> d_from(d_out);
  const auto in = fovea::detail::inputs_as<LinearFamilyInputs<T>>(inputs);
  const LinearFamilyGrads<T> all = Op::template family_grads<T>(grads);
  bool is_saved = false;
  if constexpr (Op::kHasNear) {
    is_saved = !saved.near_out.is_none() && !saved.near_lse.is_none();
  }
  std::string call = detail::call_text(Op::name(), ".backward", inputs, rows);
  call.append(is_saved ? ", near field saved" : "");
  call.append(detail::logits_text(op, in, all));
  const auto check = [&] {
    detail::check_call(Op::name(), inputs, rows, [&](const InputsOf<Op, T>& own) {
      op.check_backward(own, from, saved, d_from, grads);
    });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::backward_whole(op, inputs, from, is_saved ? saved : SavedOf<Op, T>{}, d_from,
                                  grads, rows, call, check, executor);
  }
  return detail::run_call(rows, op, call, check, executor, [&](auto& threads) {
    return std::make_unique<LinearBackwardPass<Op, T>>(op, in, saved, is_saved, d_from, all, rows,
                                                       threads);
  });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
