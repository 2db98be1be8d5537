// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention of a sharded sequence to replicated keys. Every rank
/// computes its own rows, without communication.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "fovea/attention/softmax/dense.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/patterns/plan_part.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class T>
class SharedKeysForward final : public RankPass {
 public:
  /// Allocates all memory.
  /// \param inputs q of this rank's rows, and k and v, the same on all ranks; checked
  /// \param out, saved of this rank's rows, written   \throws std::bad_alloc
  SharedKeysForward(const SoftmaxInputs<T>& inputs, const SoftmaxOptions& options,
                    const View<T>& out, const SoftmaxSaved<T>& saved, const Sharding& rows,
                    const ExecutorRef& executor) {
    if (!has_rows(inputs.q)) return;
    const HeadPlans whole(EveryKey{}, inputs.q.heads(),
                          SequenceShape::of(rows.count(), inputs.k.rows(), options.alignment));
    for (const OwnRange& range : own_ranges(rows)) {
      SoftmaxInputs<T> in = inputs;
      in.q = range.of(inputs.q);
      parts_.push_back(std::make_unique<Part>(in, options, whole, range, out, saved));
      parts_.back()->pass.reserve(executor);
    }
  }

  /// Computes this rank's rows. \returns the exception that computing threw, or null
  std::exception_ptr run(const ExecutorRef& executor) override {
    return fovea::detail::caught([&] {
      for (const auto& part : parts_) part->pass.compute(executor);
    });
  }

 private:
  /// The rows of one range.
  struct Part {
    Part(const SoftmaxInputs<T>& in, const SoftmaxOptions& options, const HeadPlans& whole,
         const OwnRange& range, const View<T>& out, const SoftmaxSaved<T>& saved)
        : call(in, options),
          plans(whole.cut([&](const AnyPlan& plan) {
            return std::vector<AnyPlan>{AnyPlan(PlanPart(plan, {&range.range(), 1}))};
          })),
          pass(call, plans, range.of(out), {range.of(saved.lse)}) {}

    SoftmaxCall<T> call;
    HeadPlans plans;
    SoftmaxForward<T> pass;
  };

  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
