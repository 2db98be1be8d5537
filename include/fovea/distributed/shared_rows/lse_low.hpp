// SPDX-License-Identifier: MIT
/// \file
/// The rounding error of large lse (lse_low_parts.hpp), for replicated queries and sharded keys.
#pragma once

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>

#include "fovea/attention/softmax/backward_call.hpp"
#include "fovea/distributed/messages/collective_check.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/patterns/plan_part.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The low parts of one backward pass. Running softmaxes without values are passed from range to
/// range.
template <class T>
class SharedLseLow {
 public:
  /// Allocates all memory.
  /// \param call of all keys, of which this rank has those of the layout; it must outlive this
  /// object   \param plan of all queries and keys   \param lse [B, Hq, P, 1], the same on all ranks
  /// \param layout ranges that begin at multiples of kKeySegment   \param at_once the number of
  /// heads processed together
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SharedLseLow(const SoftmaxCall<T>& call, const AnyPlan& plan, const View<T>& lse,
               const Communicator& ranks, const RowLayout& layout, Index at_once)
      : call_(call),
        plan_(plan),
        lse_(lse),
        ranks_(ranks),
        scan_(ranks, layout, ScanDirection::up, lse.batch() * lse.heads(),
              kRowElements * lse.rows() * Index{sizeof(T)}, at_once) {}
  SharedLseLow(const SharedLseLow&) = delete;
  SharedLseLow& operator=(const SharedLseLow&) = delete;

  /// Whether any row has a large lse. Collective, with the same result on all ranks.
  bool are_needed() const {
    bool is_any = false;
    for (Index b = 0; b < lse_.batch(); ++b) {
      for (Index h = 0; h < lse_.heads(); ++h) {
        is_any = is_any || is_any_large(b, h, {0, 1, lse_.rows()});
      }
    }
    return detail::lowest_rank(ranks_, is_any) < ranks_.size();
  }

  /// Computes them. All messages are exchanged even if computing throws.
  /// \param scratch called as scratch(worker), gives an LseScratch
  /// \returns the exception that computing threw, or null
  template <class Scratch>
  std::exception_ptr run(const ExecutorRef& executor, const Scratch& scratch) {
    const std::exception_ptr error =
        scan_.run([&](const ScanStep& scan_step, Index first, Index end) {
          const AnyPlan part(
              PlanPart(plan_, {&kEverywhere, 1}, scan_step.rows, PlanPart::EmptyPieces::kept));
          for_each_task(executor, end - first, [&](Index task, Index worker) {
            LseScratch<T> own = scratch(worker);
            for (Index n = 0; n < part.block_count(); ++n) {
              add(scan_step.rows, part.block(n, own.storage), first + task, own.kernel);
            }
          });
        });
    scan_.give_to_all();
    return error;
  }

  /// The low parts, [B, Hq, P, 1]. \pre run was called
  View<const T> values() {
    const Index heads = lse_.heads();
    const Index state = kRowElements * lse_.rows();
    return View<const T>(low(0), lse_.shape(), {heads * state, state, 1, 1});
  }

 private:
  /// Three numbers of a running softmax, and the low part.
  static constexpr Index kRowElements = 4;

  T* softmax(Index head) { return scan_.template state<T>(head); }
  T* low(Index head) { return softmax(head) + (kRowElements - 1) * lse_.rows(); }

  bool is_any_large(Index b, Index h, const RowBlock& rows) const {
    for (Index i = 0; i < rows.count; ++i) {
      const T size = std::abs(lse_(b, h, rows.first + rows.step * i, 0));
      if (kLargeLse < size && size < std::numeric_limits<T>::infinity()) return true;
    }
    return false;
  }

  /// Adds the keys of a range to the softmaxes of a block of rows, if one of them has a large lse.
  void add(const Range& keys, const QueryBlock& block, Index head, T* scratch) {
    const Sequence s = call_.sequences()[head / lse_.heads()];
    const Index h = head % lse_.heads();
    if (keys.begin == 0) std::fill_n(low(head) + block.first, block.count, T{0});
    if (keys.begin > (std::max)(s.key_end - 1, Index{0})) return;
    if (!is_any_large(s.batch, h, {block.first, block.step, block.count})) return;
    SoftmaxBlockArgs<T> args = call_.args(s, h, View<T>(), SoftmaxSaved<T>{lse_});
    args.block = block;
    args.block.most_keys = kUnboundedKeys;
    args.value_width = 0;
    args.lse_low = low(head);
    args.carry.rows = softmax(head);
    args.carry.resumes = keys.begin > 0;
    args.carry.suspends = keys.end < s.key_end;
    args.scratch = scratch;
    SoftmaxKernels<T>{}.block(args);
  }

  const SoftmaxCall<T>& call_;
  AnyPlan plan_;
  View<T> lse_;
  const Communicator& ranks_;
  PipelinedScan scan_;  // of a head: [P, 3], and then the low parts [P]
};

}  // namespace distributed

FOVEA_NAMESPACE_END
