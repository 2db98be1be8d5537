// SPDX-License-Identifier: MIT
/// \file
/// The gradients of full attention where queries are spread over ranks and all have the same keys:
/// those of keys are sums over the blocks of queries, which go along the ranges of rows.
#pragma once

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "fovea/attention/call/ordered_sections.hpp"
#include "fovea/attention/softmax/dense.hpp"
#include "fovea/core/on_error.hpp"
#include "fovea/distributed/state_chain.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// What the gradients are made of, of the queries of the whole sequence: the rows of this rank's
/// blocks are read.
template <class T>
struct SpreadQueries {
  View<const T> q;        ///< [B, Hq, N, D]
  View<const T> out;      ///< [B, Hq, N, Dv]
  View<const T> d_out;    ///< [B, Hq, N, Dv]
  View<T> lse;            ///< [B, Hq, N, 1]
  View<const T> lse_low;  ///< [B, Hq, N, 1] dense: what LseLowParts finds, or 0
  View<T> d_q;            ///< [B, Hq, N, D] the rows of this rank's blocks are written
};

/// One backward pass. A state is the sums of a block of keys of one key head, to which each range
/// adds its blocks of queries, and which goes over the sequence once for each query head of the key
/// head: the order of SoftmaxBackward. Blocks of queries add to d_q in the order of the blocks of
/// keys.
template <class T>
class DenseGradientsChain {
 public:
  /// Takes all memory.
  /// \param keys, values [B, Hk, P, D] and [B, Hk, P, Dv], the same on all ranks, which are read in
  /// `run`   \param layout whose ranges begin at multiples of block_rows(N)
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class E>
  DenseGradientsChain(const SpreadQueries<T>& queries, const View<const T>& keys,
                      const View<const T>& values, T scale, const RowLayout& layout,
                      const Communicator& ranks, E&& executor)
      : queries_(queries),
        dense_({.q = queries.q, .k = keys, .v = values}, scale),
        pass_(dense_.call, dense_.plans, queries.out, {queries.lse}, queries.d_out, {}),
        shape_(dense_.call.shape()),
        rows_of_block_(block_rows(shape_.queries)),
        own_blocks_((layout.count(ranks.rank()) + rows_of_block_ - 1) / rows_of_block_),
        workers_(worker_count(executor, (std::numeric_limits<Index>::max)())),
        chain_(ranks, layout, ChainWay::up, states(), state_elements() * Index{sizeof(T)}, workers_,
               group()),
        turns_(shape_.batch * shape_.query_heads * own_blocks_) {
    pass_.take_buffers(workers_, memory_of(executor));
  }
  DenseGradientsChain(const DenseGradientsChain&) = delete;
  DenseGradientsChain& operator=(const DenseGradientsChain&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return chain_.traffic(); }

  /// The memory of a worker for the low parts of lse of some rows. \pre the pass does not run
  LseScratch<T> lse_scratch(Index worker) {
    typename BackwardCall<T>::Buffers own = pass_.buffers(worker);
    return {std::move(own.storage), own.kernel};
  }

  /// Writes d_q, and makes the sums. All messages are exchanged even if computing throws.
  /// \param computes false if something has been thrown before, so that nothing but messages is due
  /// \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(bool computes, E&& executor) {
    // Of no queries the sums are 0.
    if (states() > 0) std::fill_n(d_k(0), states() * state_elements(), T{0});
    const std::exception_ptr error =
        chain_.run([&](const LinkOfRows& link, Index first, Index end) {
          if (!computes) return;
          for_each_task(executor, end - first, [&](Index task, Index worker) {
            add(link, first + task, pass_.buffers(worker));
          });
        });
    chain_.give_to_all();
    return error;
  }

  /// Writes the gradients of keys and values. \pre run was called
  void write(const View<T>& d_keys, const View<T>& d_values) {
    for (Index n = 0; n < states(); ++n) {
      const KeyBlock keys = plan().key_block(n / heads());
      const Index b = n % heads() / shape_.key_heads;
      const Index h = n % heads() % shape_.key_heads;
      write_rows(d_k(n), d_keys, b, h, keys, dense_.call.scale(), false);
      write_rows(d_v(n), d_values, b, h, keys, T{1}, false);
    }
  }

 private:
  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  /// Query heads of a key head.
  Index group() const { return fovea::detail::group_size(shape_.query_heads, shape_.key_heads); }
  /// That of all heads. \pre there is one
  const AnyPlan& plan() const { return dense_.plans.plan(0, 0, 0); }
  /// One for each block of keys and head: those of a block lie one behind the other.
  Index states() const { return heads() == 0 ? 0 : plan().key_block_count() * heads(); }
  Index key_rows() const { return heads() == 0 ? 0 : plan().largest_key_block(); }
  Index state_elements() const {
    return key_rows() * (padded_size(shape_.width) + padded_size(shape_.value_width));
  }
  T* d_k(Index n) { return chain_.template state<T>(n); }
  T* d_v(Index n) { return d_k(n) + key_rows() * padded_size(shape_.width); }

  /// Adds the queries of a range, of one query head, to a state, and the state's keys to them.
  void add(const LinkOfRows& link, Index n, typename BackwardCall<T>::Buffers buffers) {
    const fovea::detail::OnError stop([this] { turns_.stop(); });
    const Index part = n / heads();
    const Sequence s = pass_.sequences()[n % heads() / shape_.key_heads];
    const Index key_head = n % heads() % shape_.key_heads;
    const Index h = key_head * group() + link.round;
    const KeyBlock keys = plan().key_block(part);
    SoftmaxGradArgs<T> args;
    args.head = pass_.head(s, h);
    args.head.lse_low = &queries_.lse_low(s.batch, h, 0, 0);
    pass_.set_keys(keys, s, key_head, 0, buffers, args);
    args.d_q = buffers.d_q;
    args.d_k = d_k(n);
    args.d_v = d_v(n);
    args.scratch = buffers.kernel;
    for (Index row = link.rows.begin; row < link.rows.end; row += rows_of_block_) {
      args.block = plan().block(row / rows_of_block_, buffers.storage);
      args.row_end = args.block.count;
      args.add = link.round > 0 || row > 0;
      SoftmaxGradKernels<T>{}.grad(args);
      const Index block = (link.first + row - link.rows.begin) / rows_of_block_;
      turns_.take((s.batch * shape_.query_heads + h) * own_blocks_ + block, part, [&] {
        write_rows(args.d_q, queries_.d_q, s.batch, h, {row, 1, args.block.count},
                   dense_.call.scale(), part > 0);
      });
    }
  }

  /// Overwrites some rows of a head, or adds to them.
  static void write_rows(const T* rows, const View<T>& to, Index b, Index h, const Strip& strip,
                         T scale, bool add) {
    SoftmaxGradKernels<T>{}.scaled_rows({rows, fovea::detail::head_matrix(to, b, h, 0), strip.first,
                                         strip.step, strip.count, to.width(), scale, add});
  }

  SpreadQueries<T> queries_;
  DenseCall<T> dense_;
  BackwardCall<T> pass_;
  AttentionShape shape_;  // N queries, P keys
  Index rows_of_block_;
  Index own_blocks_;  // blocks of queries of this rank
  Index workers_;
  StateChain chain_;
  fovea::detail::OrderedSections turns_;  // one place for each block of queries and head
};

}  // namespace distributed

FOVEA_NAMESPACE_END
