// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of Sinkhorn attention.
#pragma once

#include <algorithm>
#include <limits>

#include "fovea/attention/call/logit_scale.hpp"
#include "fovea/attention/call/saved.hpp"
#include "fovea/attention/sinkhorn/sorted_blocks.hpp"
#include "fovea/kernels/softmax/table.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The largest number of query rows that is passed to the kernels at once.
inline constexpr Index kSortedBlockRows = 128;

/// The kernels' arguments for a block of queries of a head.
template <class T>
SoftmaxBlockArgs<T> sinkhorn_block_args(const SinkhornCall<T>& call, SortedBlocks<T>& blocks,
                                        Index sequence, Index head, Index number) {
  SoftmaxBlockArgs<T> args;
  const Index block = call.options.block;
  args.q = head_stored(call.inputs.q, call.batch(sequence), head, number * block);
  args.k = {blocks.keys.sorted(sequence, number), call.shape.width, 1};
  args.v = {blocks.values.sorted(sequence, number), call.shape.value_width, 1};
  args.width = call.shape.width;
  args.value_width = call.shape.value_width;
  args.scale = logit_scale<T>(call.options.scale, call.shape.width);
  args.in_tiles = true;
  args.key_end = 2 * block;
  args.block.run_count = 1;
  return args;
}

/// Calls the kernel for all rows of a block.
template <class T>
void run_sorted_block(SoftmaxBlockArgs<T> args, Index rows) {
  const KeyRun run{0, 1, args.key_end};
  args.block.runs = &run;
  for (Index i = 0; i < rows; i += kSortedBlockRows) {
    args.block.first = i;
    args.block.count = (std::min)(kSortedBlockRows, rows - i);
    SoftmaxKernels<T>{}.block(args);
  }
}

}  // namespace detail

/// One forward pass, some sequences at a time: first their sorted blocks, then attention.
template <class T>
class SinkhornForward {
 public:
  /// \param call must outlive this object
  SinkhornForward(const SinkhornCall<T>& call, const View<T>& out, const SoftmaxSaved<T>& saved)
      : call_(call), out_(out), saved_(saved), blocks_(call) {}

  /// Bytes of scratch memory with that many workers.
  static Index workspace_bytes(const SinkhornOptions& options, const AttentionShape& s,
                               Index workers) {
    return SortedBlocks<T>::size_bytes(options, s, workers) +
           workers * kernel_elements(options, s) * Index{sizeof(T)};
  }

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    const Index at_once = sinkhorn_sequences_at_once(call_.options, call_.shape);
    const Index parts = this->parts();
    const Index slot = kernel_elements(call_.options, call_.shape);
    blocks_.take_memory(executor);
    scratch_ = memory_of(executor).take(worker_count(executor, at_once * call_.group() * parts),
                                        slot * Index{sizeof(T)});
    for (Index first = 0; first < call_.sequences(); first += at_once) {
      const Index count = (std::min)(at_once, call_.sequences() - first);
      blocks_.make({first, first + count}, executor);
      for_each_task(executor, count * call_.group() * parts, [&](Index task, Index worker) {
        const Index head = task / parts;
        process_rows(first + head / call_.group(), head % call_.group(), task % parts,
                     scratch_.template data<T>() + worker * slot);
      });
    }
  }

 private:
  static Index kernel_elements(const SinkhornOptions& options, const AttentionShape& s) {
    return padded_size(softmax_block_scratch((std::min)(options.block, detail::kSortedBlockRows),
                                             s.width, s.value_width));
  }
  /// The blocks of a task.
  Index together() const { return (std::max)(Index{1}, 256 / call_.options.block); }
  Index parts() const { return (call_.most_blocks() + together() - 1) / together(); }

  void process_rows(Index sequence, Index head_of_group, Index part, T* scratch) {
    const Index head = call_.key_head(sequence) * call_.group() + head_of_group;
    const Index block = call_.options.block;
    const Index end = (std::min)((part + 1) * together(), call_.most_blocks());
    for (Index u = part * together(); u < end; ++u) {
      if (u >= call_.blocks(sequence)) {
        const auto clear = [&](const View<T>& to, T x) {
          detail::fill_rows(to, call_.batch(sequence), head, u * block, (u + 1) * block, x);
        };
        clear(out_, 0);
        clear(saved_.lse, -std::numeric_limits<T>::infinity());
        continue;
      }
      auto args = detail::sinkhorn_block_args(call_, blocks_, sequence, head, u);
      args.out = detail::head_output(out_, call_.batch(sequence), head, u * block);
      if (!saved_.lse.empty()) {
        args.lse = detail::head_matrix(saved_.lse, call_.batch(sequence), head, u * block);
      }
      args.scratch = scratch;
      detail::run_sorted_block(args, block);
    }
  }

  const SinkhornCall<T>& call_;
  View<T> out_;
  SoftmaxSaved<T> saved_;
  SortedBlocks<T> blocks_;
  Workspace scratch_;  // [workers]
};

FOVEA_NAMESPACE_END
