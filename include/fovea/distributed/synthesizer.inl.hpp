// SPDX-License-Identifier: MIT
/// \file
/// Included by synthesizer_forward.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/segments/range_sums.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/distributed/softmax/backward_pass.hpp"
#include "fovea/distributed/softmax/forward_pass.hpp"
#include "fovea/distributed/synthesizer_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class Op, class T>
class SynthesizerForwardPass final : public RankPass {
 public:
  /// Allocates all memory, on every rank, and prepares all messages.
  /// \param call checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SynthesizerForwardPass(const ShardedForwardCall<Op, T>& call, const ExecutorRef& executor)
      : softmax_(call.op.softmax()),
        logits_(call.inputs, call.rows.own(), executor, ExecutorRef().memory()),
        pass_(softmax_, {}, computed_inputs(executor), call.out, call.saved, call.rows) {
    pass_.reserve(executor);
  }

  /// As for softmax attention.
  std::uint64_t plan_number() const override { return pass_.plan_number(); }

  /// Sends, receives and computes. \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override { return pass_.run(executor); }

 private:
  /// The inputs of softmax attention, initialised before the pass.
  const SoftmaxInputs<T>& computed_inputs(const ExecutorRef& executor) {
    logits_.compute(executor);
    return logits_.inputs();
  }

  using Softmax = fovea::detail::SynthesizedSoftmax<Op>;

  Softmax softmax_;
  fovea::detail::SynthesizerLogits<Op, T> logits_;
  SoftmaxForwardPass<T> pass_;
};

template <Synthesizer Op, class T>
CommStats forward(const ShardedForwardCall<Op, T>& call) {
  const auto check = [&] {
    detail::check_call(call, [&](const InputsOf<Op, T>& own) {
      call.op.check(own, call.out, call.saved, call.rows.count());
    });
  };
  return detail::run_call(call, detail::call_text(call), check, [&](const ExecutorRef& threads) {
    return std::make_unique<SynthesizerForwardPass<Op, T>>(call, threads);
  });
}

FOVEA_RANKS_PASSES(FORWARD, RandomSynthesizerAttention)
FOVEA_RANKS_PASSES(FORWARD, FactorisedSynthesizerAttention)
FOVEA_RANKS_PASSES(FORWARD, DenseSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, RandomSynthesizerAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, FactorisedSynthesizerAttention)

namespace detail {

/// The distributed gradients of a form whose weights have rows by position: apart from softmax
/// attention, they need nothing from other ranks.
template <class Op, class T>
class SynthesizerRankGradients {
  using Logits = fovea::detail::SynthesizerLogits<Op, T>;

 public:
  /// Allocates memory for sums over sequences. \param grads this rank's
  /// \throws std::bad_alloc
  SynthesizerRankGradients(Logits& /*logits*/, const InputsOf<Op, T>& in,
                           const GradsOf<Op, T>& grads, const Sharding& /*rows*/,
                           const ExecutorRef& /*executor*/)
      : gradients_(in, grads, ExecutorRef().memory()) {}

  /// All ranges of rows are supported.
  static void check(const GradsOf<Op, T>& /*grads*/, const Sharding& /*rows*/) {}
  /// Ranks may request different gradients.
  static std::string text(const GradsOf<Op, T>& /*grads*/) { return {}; }

  /// The requested gradients of softmax attention.
  const SoftmaxGrads<T>& wanted() const { return gradients_.wanted(); }
  /// Computes the form's gradients from them.
  /// \param error an exception that was thrown before, or null   \returns the first exception, or
  /// null
  std::exception_ptr finish(Logits& logits, const std::exception_ptr& error,
                            const ExecutorRef& executor) {
    if (error) return error;
    return fovea::detail::caught([&] { gradients_.finish(logits, executor); });
  }

 private:
  fovea::detail::SynthesizerGradients<Op, T> gradients_;
};

/// The gradients of the dense Synthesizer.
template <class T>
class SynthesizerRankGradients<DenseSynthesizerAttention, T> {
  using Logits = fovea::detail::SynthesizerLogits<DenseSynthesizerAttention, T>;

 public:
  /// Allocates all memory.
  /// \param logits the queries and keys   \param in, grads this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SynthesizerRankGradients(Logits& logits, const DenseSynthesizerInputs<T>& in,
                           const DenseSynthesizerGrads<T>& grads, const Sharding& rows,
                           const ExecutorRef& executor)
      : rows_(rows),
        hidden_(logits.hidden()),
        in_(in),
        grads_(grads),
        d_queries_(has_queries() ? in.v.batch() * in.w1.heads() * rows.own_count() : 0,
                   row_bytes()),
        d_columns_(in.w2.batch(), rows.count(), {{in.w2.heads(), in.w2.rows() + 1}}),
        own_columns_(has_second() ? in.w2.batch() * in.w2.heads() * rows.own_count() : 0,
                     column_bytes()),
        of_sequences_(own_columns(), in.v.batch(), ExecutorRef().memory()),
        exchange_(rows.ranks(), d_columns_,
                  {ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                                    [&](int) {
                                      return has_second() ? std::vector<Range>{{0, rows.count()}}
                                                          : std::vector<Range>{};
                                    })}),
        sums_(rows.ranks(), rows.layout(), has_first() ? sums() : 0,
              hidden_.first_weights_elements(), in.w1.batch() == 1 ? in.v.batch() : 1,
              (std::max)(Index{1}, worker_count(executor, sums()))) {
    if (has_queries()) {
      wanted_.q = fovea::detail::KeyColumns<T>::rows_of(
          d_queries_, {in.v.batch(), in.w1.heads(), rows.own_count(), in.w1.width() + 1});
    }
    if (has_second()) wanted_.k = of_sequences_.of_sequences();
    wanted_.v = grads.v;
  }

  /// Refuses ranges of rows at which the sums for W1 and b1 cannot be divided. \throws
  /// std::invalid_argument
  static void check(const DenseSynthesizerGrads<T>& grads, const Sharding& rows) {
    if (grads.w1.empty() && grads.b1.empty()) return;
    check_scan_begins(DenseSynthesizerAttention::name(), "gradients of w1 and b1", rows);
  }
  /// The names of the requested gradients of weights, which must be the same on all ranks.
  static std::string text(const DenseSynthesizerGrads<T>& grads) {
    std::string text;
    grads.for_each_tensor([&](const char* name, const View<T>& x) {
      const std::string_view own = name;
      if (own == "x" || own == "v" || x.empty()) return;
      text.append(", gradients of ").append(own);
    });
    return text;
  }

  /// The requested gradients of softmax attention.
  const SoftmaxGrads<T>& wanted() const { return wanted_; }

  /// Computes the form's gradients from them. All messages are exchanged even after an exception.
  /// \param error an exception that was thrown before, or null   \returns the first exception, or
  /// null
  std::exception_ptr finish(Logits& /*logits*/, std::exception_ptr error,
                            const ExecutorRef& executor) {
    const auto compute = [&](const auto& f) {
      if (!error) error = fovea::detail::caught(f);
    };
    compute([&] { hidden_.finish_tokens(wanted_.q, grads_.x, executor); });
    if (has_first()) {
      const std::exception_ptr thrown = add_first(error != nullptr, executor);
      if (!error) error = thrown;
    }
    if (has_second()) {
      compute([&] {
        of_sequences_.finish(executor);
        d_columns_.put(0, own_columns(), rows_.own());
      });
      exchange_.run();
      compute(
          [&] { fovea::detail::KeyColumns<T>::finish(d_columns_.tensor(0), grads_, executor); });
    }
    return error;
  }

 private:
  bool has_first() const { return !grads_.w1.empty() || !grads_.b1.empty(); }
  bool has_queries() const { return has_first() || !grads_.x.empty(); }
  bool has_second() const { return !grads_.w2.empty() || !grads_.b2.empty(); }

  Index row_bytes() const {
    return fovea::detail::HiddenLayer<T>::row_of(in_.w1.width()) * Index{sizeof(T)};
  }
  Index column_bytes() const { return (in_.w2.rows() + 1) * Index{sizeof(T)}; }
  /// The sums for the gradients of W1 and b1.
  Index sums() const { return in_.w1.batch() * in_.w1.heads(); }

  /// The gradients of the rank's columns of W2 and b2, after the sum over ranks.
  View<T> own_columns() {
    if (!has_second()) return {};
    return {own_columns_.size_bytes() == 0 ? nullptr : own_columns_.template data<T>(),
            {in_.w2.batch(), in_.w2.heads(), rows_.own_count(), in_.w2.rows() + 1}};
  }

  /// Sums over the tokens of all ranks. \returns the exception that was thrown, or null
  std::exception_ptr add_first(bool has_failed, const ExecutorRef& executor) {
    const Index heads = in_.w1.heads();
    const auto add = [&](const ScanStep& link, Index n, T* sum, Index worker) {
      if (has_failed) return;
      const Range own = {link.first, link.first + link.rows.end - link.rows.begin};
      const Index b = in_.w1.batch() == 1 ? link.round : n / heads;
      hidden_.add_to_first_weights(wanted_.q, !grads_.w1.empty(), b, n % heads, own, sum, worker);
    };
    const std::exception_ptr error = sums_.run(add, executor);
    for (Index n = 0; n < sums(); ++n) {
      hidden_.write_first_weights(sums_.of(n), grads_, n / heads, n % heads);
    }
    return error;
  }

  const Sharding& rows_;
  fovea::detail::HiddenLayer<T>& hidden_;
  DenseSynthesizerInputs<T> in_;
  DenseSynthesizerGrads<T> grads_;
  Workspace d_queries_;
  RowTensors<T> d_columns_;  // [1 or B, Hk, N, M + 1], of all ranks
  Workspace own_columns_;
  fovea::detail::BatchSum<T> of_sequences_;
  Exchange exchange_;
  RangeSums<T> sums_;
  SoftmaxGrads<T> wanted_;
};

}  // namespace detail

/// One backward pass.
template <class Op, class T>
class SynthesizerBackwardPass final : public RankPass {
 public:
  /// Allocates all memory, on every rank, and prepares all messages.
  /// \param call checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SynthesizerBackwardPass(const ShardedBackwardCall<Op, T>& call, const ExecutorRef& executor)
      : softmax_(call.op.softmax()),
        logits_(call.inputs, call.rows.own(), executor, ExecutorRef().memory()),
        grads_(logits_, call.inputs, call.grads, call.rows, executor),
        pass_(softmax_, {}, computed_inputs(executor), call.out, call.saved, call.d_out,
              grads_.wanted(), call.rows) {
    pass_.reserve(executor);
  }

  /// As for softmax attention.
  std::uint64_t plan_number() const override { return pass_.plan_number(); }

  /// Sends, receives and computes. All messages are exchanged even if computing throws.
  /// \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    return grads_.finish(logits_, pass_.run(executor), executor);
  }

 private:
  /// The inputs of softmax attention, initialised before the pass.
  const SoftmaxInputs<T>& computed_inputs(const ExecutorRef& executor) {
    logits_.compute(executor);
    return logits_.inputs();
  }

  using Softmax = fovea::detail::SynthesizedSoftmax<Op>;

  Softmax softmax_;
  fovea::detail::SynthesizerLogits<Op, T> logits_;
  detail::SynthesizerRankGradients<Op, T> grads_;
  SoftmaxBackwardPass<T> pass_;
};

template <Synthesizer Op, class T>
CommStats backward(const ShardedBackwardCall<Op, T>& call) {
  using Gradients = detail::SynthesizerRankGradients<Op, T>;
  const auto check = [&] {
    detail::check_call(call, [&](const InputsOf<Op, T>& own) {
      call.op.check_backward(own, call.out, call.saved, call.d_out, call.grads, call.rows.count());
    });
    Gradients::check(call.grads, call.rows);
  };
  return detail::run_call(call, detail::call_text(call) + Gradients::text(call.grads), check,
                          [&](const ExecutorRef& threads) {
                            return std::make_unique<SynthesizerBackwardPass<Op, T>>(call, threads);
                          });
}

FOVEA_RANKS_PASSES(BACKWARD, RandomSynthesizerAttention)
FOVEA_RANKS_PASSES(BACKWARD, FactorisedSynthesizerAttention)
FOVEA_RANKS_PASSES(BACKWARD, DenseSynthesizerAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
