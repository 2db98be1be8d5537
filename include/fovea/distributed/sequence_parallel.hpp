// SPDX-License-Identifier: MIT
/// \file
/// Layers over a sequence that is sharded over ranks: what they do with a token alone they do with
/// those of this rank; attention is that of the whole sequence, and so are gradients of parameters.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/fetched_rows.hpp"
#include "fovea/distributed/messages/pipelined_scan.hpp"
#include "fovea/distributed/rows/places_of_rows.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/simd/matrix.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// The forward pass of an operator, found where a layer with that operator is made: passes are in
/// headers of their own, and ShardedExecutor has a member of the same name.
template <class Op, class E, class... Arguments>
auto forward_of(const Op& op, const Sharding& rows, E& executor, const Arguments&... arguments)
    -> decltype(forward(op, arguments..., rows, executor)) {
  return forward(op, arguments..., rows, executor);
}
/// The backward pass likewise.
template <class Op, class E, class... Arguments>
auto backward_of(const Op& op, const Sharding& rows, E& executor, const Arguments&... arguments)
    -> decltype(backward(op, arguments..., rows, executor)) {
  return backward(op, arguments..., rows, executor);
}

}  // namespace detail

/// An executor for layers whose tokens are the rows of this rank. sequence_parallel makes it.
///
/// The gradient of a parameter goes along the ranks in the order of their rows, and each adds its
/// tokens: one part of it behind the other, so that all ranks are at work. Then all have it, with
/// the bits of one process.
/// \tparam E the executor of this rank's work
template <Executor E>
class ShardedExecutor {
 public:
  /// It spreads rows: layers ask it for what is made of all of them.
  static constexpr bool kShardsRows = true;
  /// Whether the executor says that its threads are awake.
  bool takes_small_work() const { return fovea::takes_small_work(executor_); }

  /// \param rows, executor must outlive this object
  ShardedExecutor(const Sharding& rows, E& executor)
      : rows_(rows), executor_(executor), own_(rows.own()) {}
  ShardedExecutor(const ShardedExecutor&) = delete;
  ShardedExecutor& operator=(const ShardedExecutor&) = delete;

  /// That of the executor.
  Index concurrency() const { return static_cast<Index>(executor_.concurrency()); }
  /// Runs the calls on the executor.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    executor_.parallel_for(n, f);
  }

  /// The executor of this rank's work.
  E& executor() const { return executor_; }
  /// The row of the sequence that row n of this rank is.
  Index row_of_sequence(Index n) const { return own_.row(n); }
  /// The rows of the sequence. \param brought rows of activations of this rank
  /// \throws std::invalid_argument unless they are as many as it holds
  Index rows_of_sequence(Index brought) const {
    if (brought != own_.count()) {
      refuse("sequence_parallel", "the activations have " + std::to_string(brought) + " rows",
             "expected " + std::to_string(own_.count()) + ", the rows of " +
                 detail::rank_text(rows_.ranks().rank()));
    }
    return rows_.count();
  }
  /// Ranks must say the same in the same order of what the numbers of their layers depend on: those
  /// that differ are told apart where they meet the next time. \param layer its name
  template <class... X>
  void add_to_collective_check(const char* layer, const X&... options) {
    std::string text(layer);
    (text.append(", ").append(detail::value_text(options)), ...);
    check_hash_ = 3 * check_hash_ + detail::hash_of(text);
  }
  /// The number of what was said so far.
  std::uint64_t check_hash() const { return check_hash_; }

  /// Calls f(place, rows) for the ranges of this rank, where `place` is that of their first row.
  template <class F>
  void for_each_range(const F& f) const {
    for (const Range& range : rows_.own()) f(own_.place(range.begin), range);
  }

  /// The forward pass of an operator over all rows.
  /// \param arguments what `forward` of fovea/distributed has between the operator and the rows
  /// \throws as that
  template <class Op, class... Arguments>
  void forward(const Op& op, const Arguments&... arguments) {
    constexpr bool has_pass = requires { detail::forward_of(op, rows_, executor_, arguments...); };
    static_assert(has_pass, "fovea: this operator has no distributed forward pass");
    const Sharding rows = rows_.with_check_hash(check_hash_);
    meet(
        [&] { comm_stats_ = comm_stats_ + detail::forward_of(op, rows, executor_, arguments...); });
  }
  /// The backward pass likewise.
  template <class Op, class... Arguments>
  void backward(const Op& op, const Arguments&... arguments) {
    constexpr bool has_pass = requires { detail::backward_of(op, rows_, executor_, arguments...); };
    static_assert(has_pass, "fovea: this operator has no distributed backward pass");
    const Sharding rows = rows_.with_check_hash(check_hash_);
    meet([&] {
      comm_stats_ = comm_stats_ + detail::backward_of(op, rows, executor_, arguments...);
    });
  }

  /// Adds all tokens to a sum, which begins as that of the rank with the first row.
  /// \param x one of the activations that are added up \param sum dense rows, of which row r is at
  /// r sum.row
  /// \param rows number of its rows \param least_rows how many of them are worth a message, if
  /// there are more \param add called as add(to, rows, sequence, tokens): adds some tokens of this
  /// rank to rows of the sum that stand at `to`, one after the other \throws on all ranks what
  /// `add` throws on one; std::invalid_argument if a range of rows does not begin where a chain of
  /// tokens does
  template <class X, class T, class Add>
  void sum_over_tokens(const View<X>& x, const Matrix<T>& sum, Index rows, Index least_rows,
                       const Add& add) {
    // So many parts keep all ranks at work for most of the time.
    const Index most = Index{4} * rows_.ranks().size();
    const Index parts = std::clamp(rows / (std::max)(least_rows, Index{1}), Index{1}, most);
    const Index of_part = (rows + parts - 1) / parts;
    const auto rows_of = [&](Index part) {
      return Range{part * of_part, (part + 1) * of_part}.within({0, rows});
    };
    const auto for_each_part = [&](const auto& f) {
      for (Index part = 0; part < parts; ++part) {
        const Range of = rows_of(part);
        if (!of.is_empty()) f(part, sum.data + of.begin * sum.row, (of.end - of.begin) * sum.row);
      }
    };
    meet([&] {
      std::unique_ptr<PipelinedScan> scan;
      const auto prepare = [&] {
        static_cast<void>(rows_of_sequence(x.rows()));
        detail::check_scan_begins("sequence_parallel", "gradients of weights", rows_);
        scan =
            std::make_unique<PipelinedScan>(rows_.ranks(), rows_.layout(), ScanDirection::up, parts,
                                            of_part * sum.row * Index{sizeof(T)}, 1, x.batch());
      };
      detail::together(rows_.ranks(), text_of<T>(rows, sum.row, x.batch()), prepare, check_hash_);
      const auto state = [&](Index part) { return scan->template state<T>(part); };
      for_each_part(
          [&](Index part, const T* from, Index count) { std::copy_n(from, count, state(part)); });
      const std::exception_ptr error = scan->run([&](const ScanStep& scan_step, Index part, Index) {
        const Range tokens = {scan_step.first,
                              scan_step.first + scan_step.rows.end - scan_step.rows.begin};
        add(state(part), rows_of(part), scan_step.round, tokens);
      });
      scan->give_to_all();
      comm_stats_ = comm_stats_ + scan->comm_stats();
      detail::check_collectively(rows_.ranks(), error, "a sum over tokens");
      for_each_part([&](Index part, T* to, Index count) { std::copy_n(state(part), count, to); });
    });
  }

  /// Calls f(all) with rows of others beside those of this rank: `all` [B, 1, N, C] has them where
  /// they stand in the sequence, and nothing else of it may be read.
  /// \param layer for messages \param x [B, 1, own rows, C] of this rank
  /// \param block if not 1, a row of x is that of a block of so many tokens, whose first one this
  /// rank holds, and N is the number of blocks
  /// \param needs called as needs(ranges that a rank holds) for all ranks, which say the same: the
  /// ranges of rows that the rank needs, as FetchedRows takes them
  /// \throws what f throws, and on all ranks what is thrown before
  template <class T, class Needs, class F>
  void with_rows_of_others(const char* layer, const View<const T>& x, Index block,
                           const Needs& needs, const F& f) {
    std::optional<RowLayout> layout;
    std::optional<FetchedRows<T>> fetched;
    meet([&] {
      const auto check = [&] {
        layout.emplace(blocks_of(rows_.layout(), block));
        const Index own = layout->count(rows_.ranks().rank());
        fovea::detail::check_extent(layer, "x", x.shape(), 2, own, "the rows of this rank");
      };
      const CommStats fetch = detail::run_call(
          rows_.with_check_hash(check_hash_), detail::CollectiveCall(layer, executor_),
          fetch_text(layer, x, block), check, [&](const ExecutorRef& /*threads*/) {
            return &fetched.emplace(rows_.ranks(), *layout, x, needs);
          });
      comm_stats_ = comm_stats_ + fetch;
    });
    f(fetched->rows());
  }

  /// The messages of this rank so far.
  const CommStats& comm_stats() const { return comm_stats_; }
  /// Whether all ranks have thrown this together. What a program makes of it, or throws after it
  /// has caught it, is its own.
  bool all_have_thrown(const std::exception_ptr& error) const { return error == thrown_by_all_; }

 private:
  /// Calls f, in which ranks meet: what it throws, all throw.
  template <class F>
  void meet(const F& f) {
    thrown_by_all_ = fovea::detail::caught(f);
    if (thrown_by_all_) std::rethrow_exception(thrown_by_all_);
  }

  template <class T>
  static std::string text_of(Index rows, Index columns, Index batch) {
    std::string text("a sum over tokens of ");
    text.append(std::to_string(rows)).append("x").append(std::to_string(columns));
    text.append(", ").append(std::to_string(sizeof(T))).append(" bytes a number, batch ");
    return text.append(std::to_string(batch));
  }

  template <class T>
  static std::string fetch_text(const char* layer, const View<T>& x, Index block) {
    std::string text(layer);
    text.append(" for neighbouring rows of ").append(detail::sizes_text(x));
    text.append(" (batch, heads, width), ").append(std::to_string(sizeof(T)));
    return text.append(" bytes a number, blocks of ").append(std::to_string(block));
  }

  const Sharding& rows_;
  E& executor_;
  PlacesInRanges own_;
  CommStats comm_stats_;
  std::uint64_t check_hash_ = 0;                // by add_to_collective_check
  std::exception_ptr thrown_by_all_ = nullptr;  // in the last meeting
};

/// Calls layers over a sequence that is sharded over ranks, on all of them together:
/// ```
/// distributed::sequence_parallel(rows, pool, [&](auto& over) {
///   block.forward(x, y, saved, over);
///   block.backward(x, saved, d_y, d_x, over);
/// });
/// ```
/// x, y and all that a layer keeps have this rank's rows, in ascending order; key lengths count
/// tokens of the whole sequence, and a bias or mask has a column for each of them. All ranks have
/// the same parameters, and the same gradients of them before and behind. The bits are those of one
/// process, for any number of ranks, if the ranges of rows begin at multiples of kReductionBlock
/// (RowLayout makes such ones); forward passes take any, but that of MeanPool, which is a sum, too.
///
/// It serves all layers whose operators have passes over ranks, of which the program includes the
/// headers, and softmax_cross_entropy of tokens; but no decoders. All ranks have the mean of
/// MeanPool, and the packed sequence of LunaLayer: what is made of them all compute alike, without
/// `over`. The memory of CrossMultiHead is sharded as its tokens are. The compiler refuses others.
///
/// Cost: that of this rank's tokens; a sum goes through the ranks in up to four parts for each, and
/// to all; rows of others that a layer reads come once in a pass. Memory: two of the largest
/// parameter, and a copy of the rows that a layer reads beside those of others.
/// \param rows who holds what \param executor that of this rank's work
/// \param f called as f(over), with an executor for the layers; all ranks must call the same
/// \returns the messages of this rank
/// \throws what f throws on one rank, on all of them
template <class X, class F>
CommStats sequence_parallel(const Sharding& rows, X&& executor, const F& f) {
  auto&& threads = as_executor(executor);
  ShardedExecutor<std::remove_reference_t<decltype(threads)>> over(rows, threads);
  const std::exception_ptr error = fovea::detail::caught([&] { f(over); });
  if (error && over.all_have_thrown(error)) std::rethrow_exception(error);
  detail::check_collectively(rows.ranks(), error, "sequence_parallel", over.check_hash());
  return over.comm_stats();
}

}  // namespace distributed

FOVEA_NAMESPACE_END
