// SPDX-License-Identifier: MIT
/// \file
/// A causal pass across ranks: the states of key heads are passed along the ranges of rows.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/core/executor_ref.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/distributed/messages/state_chain.hpp"
#include "fovea/kernels/linear/linear.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The key heads of one causal pass. Each range of rows adds its tokens to the incoming states and
/// passes them on, a few key heads at a time, so that ranks work on different heads at once.
template <class T>
class KeyHeadChain {
 public:
  /// The sizes of a key head.
  struct Sizes {
    Index batch = 0;      ///< sequences
    Index key_heads = 0;  ///< of each
    Index group = 0;      ///< query heads of a key head
    Index state = 0;      ///< elements of its state
    Index scratch = 0;    ///< scratch elements per worker
  };
  /// The memory used to process a key head.
  struct Memory {
    T* state = nullptr;             ///< [Sizes::state]
    T* scratch = nullptr;           ///< [Sizes::scratch]
    LinearRows<T>* rows = nullptr;  ///< [group]
  };

  /// Allocates all memory.
  /// \param key_lengths of the whole sequence, or none; they must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  KeyHeadChain(const Sizes& sizes, IndexSpan key_lengths, const Rows& rows,
               const ExecutorRef& executor)
      : sizes_(sizes),
        key_lengths_(key_lengths),
        rows_(rows),
        workers_((std::max)(worker_count(executor, heads()), Index{1})),
        scratch_(memory_of(executor).take(workers_, sizes.scratch * Index{sizeof(T)})),
        row_args_(static_cast<std::size_t>(workers_ * sizes.group)),
        chain_(rows.ranks(), rows.layout(), ChainWay::up, heads(), sizes.state * Index{sizeof(T)},
               workers_) {}
  KeyHeadChain(const KeyHeadChain&) = delete;
  KeyHeadChain& operator=(const KeyHeadChain&) = delete;

  /// This rank's communication statistics.
  Traffic traffic() const { return chain_.traffic(); }

  /// Processes this rank's rows. All messages are exchanged even if computing throws.
  /// \tparam Strip of the stream: rows, and tokens not yet in the state
  /// \param add called as add(batch entry, key head, strip, memory) from threads of the executor
  /// \returns the exception that computing threw, or null
  template <class Strip, class Add>
  std::exception_ptr run(const ExecutorRef& executor, const Add& add) {
    return chain_.run([&](const LinkOfRows& link, Index first, Index end) {
      for_each_task(executor, end - first, [&](Index task, Index worker) {
        const Index head = first + task;
        const Index b = head / sizes_.key_heads;
        const Index before = (std::min)(link.rows.begin, key_end(b));
        const Index behind = (std::min)(link.rows.end, key_end(b));
        const Strip strip = {link.first, link.rows.end - link.rows.begin,
                             link.first, behind - before,
                             before,     link.rows.begin};
        add(b, head % sizes_.key_heads, strip,
            Memory{chain_.template state<T>(head),
                   scratch_.template data<T>() + worker * sizes_.scratch,
                   row_args_.data() + worker * sizes_.group});
      });
    });
  }

 private:
  /// Key heads of all sequences.
  Index heads() const { return sizes_.batch * sizes_.key_heads; }
  Index key_end(Index batch) const {
    return key_lengths_.empty() ? rows_.count() : key_lengths_[static_cast<std::size_t>(batch)];
  }

  Sizes sizes_;
  IndexSpan key_lengths_;
  const Rows& rows_;
  Index workers_;
  Workspace scratch_;                    // [workers, scratch]
  std::vector<LinearRows<T>> row_args_;  // [workers, group]
  StateChain chain_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
