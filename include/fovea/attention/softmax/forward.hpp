// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of softmax attention: the division of work among threads, and their scratch
/// memory.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/table.hpp"

FOVEA_NAMESPACE_BEGIN

/// The residue classes of a plan whose rows are far apart in memory, several neighbours at a time
/// if each block is a whole class. (In measurements with a stride of 128, 4 at a time took 0.90 to
/// 0.93 of the time of single ones.)
/// \tparam T the type of the arithmetic
template <class T>
class StridedPacking {
 public:
  /// \param shape the shape of the plan's sequence
  StridedPacking(const AnyPlan& plan, const SequenceShape& shape, Index width, Index value_width)
      : step_(plan.row_step()),
        is_far_(is_far(step_, (std::max)(width, value_width) * Index{sizeof(T)})),
        keys_(ceil_div(shape.keys, step_)) {
    const bool are_whole = plan.block_count() == (std::min)(shape.queries, step_);
    if (!is_far_ || !are_whole) return;
    const Index of_class = packed_classes(1, (std::max)(keys_, Index{1}), width, value_width);
    together_ = std::clamp(elements() / of_class, Index{1}, (std::min)(kMost, step_));
  }

  /// The number of blocks per task, at least 1.
  Index together() const { return together_; }

  /// Elements of memory for their keys and values, independent of the sequence length.
  Index elements() const { return is_far_ ? kBytes / Index{sizeof(T)} : 0; }

  /// Where the block of class `own`, counted from the task's first class, reads its keys.
  /// \param first position of the first row of the task's first block
  /// \param block the block, with its keys
  /// \param data elements() elements
  PackedResidues<T> of_block(Index first, Index own, const QueryBlock& block, T* data) const {
    PackedResidues<T> packed;
    if (together_ == 1) return packed;
    packed.count = together_;
    packed.keys = keys_;
    packed.first = floor_mod(first, step_);
    packed.step = step_;
    packed.own = own;
    // After the last class comes the first one again, whose keys are not packed.
    bool is_among = packed.first + own < step_;
    for (Index r = 0; r < block.run_count; ++r) {
      const KeyRun& run = block.runs[r];
      is_among = is_among && run.step == step_ && run.first % step_ == packed.first + own;
    }
    if (is_among && block.most_keys > kBandKeys) packed.data = data;
    return packed;
  }

 private:
  static constexpr Index kBytes = Index{1} << 18;  // at most half of an L2 cache
  static constexpr Index kMost = 8;

  /// Whether rows of this many bytes are far apart, for any step.
  static bool is_far(Index step, Index row_bytes) {
    return step > 1 && row_bytes > 0 && step >= ceil_div(kFarApart, row_bytes);
  }

  Index step_;
  bool is_far_;
  Index keys_;  // of a class
  Index together_ = 1;
};

/// Uses every head's keys where the call has them.
struct KeysInPlace {
  /// Changes nothing.
  template <class Args>
  void operator()(Index /*pass*/, const SequenceTask& /*task*/, Args& /*args*/) const {}
};

/// One forward pass. A task is a query block of one head, or several that read rows of the same
/// pages. Between a pattern's passes every row's running softmax is kept in memory.
/// \tparam Place place(pass, task, args) may change where a head's keys are, and the positions of
/// its queries
template <class T, class Place = KeysInPlace>
class SoftmaxForward {
 public:
  /// The kernels of a forward pass.
  using Kernels = SoftmaxKernels<Compute<T>, kStorage<T>>;
  /// A kernel that computes a block.
  using BlockKernel = void (Kernels::*)(const HeadArgs<T>&) const noexcept;

  /// \param call, plans must outlive this object
  /// \param out [B, Hq, Nq, Dv], written
  /// \param saved lse is written if a tensor is given
  /// \param block the kernel of a block
  SoftmaxForward(const SoftmaxCall<T>& call, const HeadPlans& plans, const View<T>& out,
                 const SoftmaxSaved<T>& saved, const Place& place = {},
                 BlockKernel block = &Kernels::block)
      : call_(call), plans_(plans), out_(out), saved_(saved), place_(place), block_(block) {}

  /// Computes the pass.
  /// \throws std::bad_alloc before anything is written
  void run(const ExecutorRef& executor) {
    reserve(executor);
    if (!executor.only_counts()) compute(executor);
  }

  /// Allocates the memory for `compute` with the same executor.
  /// \throws std::bad_alloc
  void reserve(const ExecutorRef& executor) {
    const AttentionShape shape = call_.shape();
    tasks_.reserve(static_cast<std::size_t>(plans_.pass_count()));
    for (Index pass = 0; pass < plans_.pass_count(); ++pass) {
      tasks_.emplace_back(call_.sequences(), shape.query_heads, [&](Index s, Index h) {
        const Classes of_head = classes(pass, s, h);
        classes_elements_ = (std::max)(classes_elements_, of_head.elements());
        return (plans_.plan(pass, s, h).block_count() + of_head.together() - 1) /
               of_head.together();
      });
      workers_ = (std::max)(workers_, worker_count(executor, tasks_.back().count()));
    }
    most_runs_ = plans_.most_runs();
    auto&& memory = memory_of(executor);
    carry_ = memory.take(carry_elements(shape, plans_), kElement);
    scratch_ = memory.take(workers_, slot_bytes(shape, classes_elements_));
    blocks_ = memory.take(workers_, BlockStorage::bytes(most_runs_));
  }

  /// Computes the pass.
  /// \pre reserve(executor) was called, once
  void compute(const ExecutorRef& executor) {
    for (Index pass = 0; pass < plans_.pass_count(); ++pass) compute_pass(pass, executor);
  }

  /// Computes one pass; `compute` runs all of them in order.
  /// \pre reserve(executor) was called, once
  void compute_pass(Index pass, const ExecutorRef& executor) {
    const Index slot = slot_bytes(call_.shape(), classes_elements_) / kElement;
    const SequenceTasks& tasks = tasks_[static_cast<std::size_t>(pass)];
    for_each_task(executor, tasks.count(), [&](Index task, Index worker) {
      BlockStorage storage(most_runs_,
                           blocks_.data<std::byte>() + worker * BlockStorage::bytes(most_runs_));
      process_task(pass, tasks[task], storage,
                   scratch_.template data<Compute<T>>() + worker * slot);
    });
  }

 private:
  static constexpr Index kElement = sizeof(Compute<T>);
  static constexpr bool kOutIsWide = std::same_as<T, Compute<T>>;

  using Classes = StridedPacking<Compute<T>>;

  Classes classes(Index pass, Index sequence, Index head) const {
    const AttentionShape shape = call_.shape();
    return {plans_.plan(pass, sequence, head), call_.sequences()[sequence].shape(), shape.width,
            shape.value_width};
  }

  static Index block_elements(const AttentionShape& shape) {
    return softmax_block_scratch(block_rows(shape.queries), shape.width, shape.value_width);
  }
  /// Bytes of scratch of one worker, a multiple of a cache line.
  static Index slot_bytes(const AttentionShape& shape, Index classes_elements) {
    return (block_elements(shape) + classes_elements) * kElement;
  }

  /// The numbers kept for one row between passes: three, and the sum of values unless that fits
  /// `out`.
  static Index carry_row(const AttentionShape& shape) {
    return 3 + (kOutIsWide ? 0 : shape.value_width);
  }
  static Index carry_elements(const AttentionShape& shape, const HeadPlans& plans) {
    if (plans.pass_count() == 1) return 0;
    return shape.batch * shape.query_heads * shape.queries * carry_row(shape);
  }

  void process_task(Index pass, const SequenceTask& task, BlockStorage& storage,
                    Compute<T>* scratch) {
    const Sequence sequence = call_.sequences()[task.sequence];
    const AnyPlan& plan = plans_.plan(pass, task.sequence, task.head);
    const Classes classes = this->classes(pass, task.sequence, task.head);
    HeadArgs<T> args = call_.args(sequence, task.head, out_, saved_);
    args.carry = carry(sequence, task.head);
    args.carry.resumes = pass > 0;
    args.carry.suspends = !plans_.is_last(pass, task.sequence, task.head);
    args.scratch = scratch;
    // The last blocks come first: under a causal pattern they have the most keys, and the schedule
    // should end with small ones.
    const Index end = plan.block_count() - task.part * classes.together();
    const Index begin = (std::max)(end - classes.together(), Index{0});
    bool is_packed = false;
    for (Index b = begin; b < end; ++b) {
      args.block = plan.block(b, storage);
      if (args.carry.is_used()) args.block.most_keys = kUnboundedKeys;
      args.next_block = classes.together() > 1 ? 0 : next_block(plan, b, args.block);
      args.classes = classes.of_block(begin + args.first_position, b - begin, args.block,
                                      scratch + block_elements(call_.shape()));
      args.classes.is_packed = is_packed;
      is_packed = is_packed || args.classes.data != nullptr;
      HeadArgs<T> placed = args;
      place_(pass, task, placed);
      (Kernels{}.*block_)(placed);
    }
  }

  /// Rows from block b to the one that the same worker probably takes next; 0 if unknown. (Not
  /// useful within a residue class, whose blocks see the same keys, nor for classes that are
  /// processed together.)
  Index next_block(const AnyPlan& plan, Index b, const QueryBlock& block) const {
    if (b < workers_) return 0;
    if (block.step == 1) return -(std::min)(workers_ * block.count, block.first);
    const Index rows = plan.rows(b - workers_).first - block.first;
    return rows % block.step == 0 ? 0 : rows;
  }

  /// Where one head's rows are kept between passes.
  CarriedSoftmax<Compute<T>> carry(const Sequence& s, Index head) {
    CarriedSoftmax<Compute<T>> carry;
    if (carry_.size_bytes() == 0) return carry;
    const AttentionShape shape = call_.shape();
    const Index row = (s.batch * shape.query_heads + head) * shape.queries + s.first_query;
    carry.rows = carry_.template data<Compute<T>>() + row * 3;
    if constexpr (kOutIsWide) {
      carry.acc = detail::head_matrix(out_, s.batch, head, s.first_query);
    } else {
      Compute<T>* const sums =
          carry_.template data<Compute<T>>() + shape.batch * shape.query_heads * shape.queries * 3;
      carry.acc = {sums + row * shape.value_width, shape.value_width, 1};
    }
    return carry;
  }

  const SoftmaxCall<T>& call_;
  const HeadPlans& plans_;
  View<T> out_;
  SoftmaxSaved<T> saved_;
  Place place_;
  BlockKernel block_;
  std::vector<SequenceTasks> tasks_;  // for each pass
  Index classes_elements_ = 0;        // of the head that packs the most
  Index workers_ = 0;
  Index most_runs_ = 0;
  Workspace carry_;
  Workspace scratch_;  // [workers]
  Workspace blocks_;   // [workers] BlockStorage
};

FOVEA_NAMESPACE_END
