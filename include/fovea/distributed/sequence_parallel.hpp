// SPDX-License-Identifier: MIT
/// \file
/// Layers over a sequence that is distributed over ranks: each rank computes its own tokens, with
/// attention to the whole sequence and gradients of parameters over the whole sequence.
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

/// The forward pass of an operator, found by argument-dependent lookup when a layer with that
/// operator is instantiated: passes are in separate headers, and the class below has a member of
/// the same name.
template <class Op, class E, class... Arguments>
auto forward_of(const Op& op, const Sharding& rows, E& executor, const Arguments&... arguments)
    -> decltype(forward(op, arguments..., rows, executor)) {
  return forward(op, arguments..., rows, executor);
}
/// The same for the backward pass.
template <class Op, class E, class... Arguments>
auto backward_of(const Op& op, const Sharding& rows, E& executor, const Arguments&... arguments)
    -> decltype(backward(op, arguments..., rows, executor)) {
  return backward(op, arguments..., rows, executor);
}

}  // namespace detail

/// An executor for layers whose tokens are this rank's rows, constructed by sequence_parallel.
///
/// The gradient of a parameter passes through the ranks in the order of their rows, and each adds
/// its tokens. It is pipelined in parts, so that all ranks are busy. Then all ranks get it, with
/// the bits of a single process.
/// \tparam E the executor of this rank
template <Executor E>
class ShardedExecutor {
 public:
  /// Layers use the distributed passes if this is true.
  static constexpr bool kShardsRows = true;
  /// Whether the executor's threads are awake.
  bool takes_small_work() const { return fovea::takes_small_work(executor_); }

  /// \param rows, executor must outlive this object
  ShardedExecutor(const Sharding& rows, E& executor)
      : rows_(rows), executor_(executor), own_(rows.own()), before_(rows.ranks().comm_stats()) {}
  ShardedExecutor(const ShardedExecutor&) = delete;
  ShardedExecutor& operator=(const ShardedExecutor&) = delete;

  /// The executor's.
  Index concurrency() const { return static_cast<Index>(executor_.concurrency()); }
  /// Runs the calls on the executor.
  template <class F>
  void parallel_for(Index n, F&& f) const {
    executor_.parallel_for(n, f);
  }

  /// The executor of this rank.
  E& executor() const { return executor_; }
  /// The position in the sequence of this rank's row n.
  Index row_of_sequence(Index n) const { return own_.row(n); }
  /// The number of rows of the sequence. \param brought number of rows of this rank's activations
  /// \throws std::invalid_argument if this rank has a different number of rows
  Index rows_of_sequence(Index brought) const {
    if (brought != own_.count()) {
      refuse("sequence_parallel", "the activations have " + std::to_string(brought) + " rows",
             "expected " + std::to_string(own_.count()) + ", the rows of " +
                 detail::rank_text(rows_.ranks().rank()));
    }
    return rows_.count();
  }
  /// Adds options that must be equal on all ranks, in the same order; the next collective call
  /// refuses differences. \param layer the layer's name
  template <class... X>
  void add_to_collective_check(const char* layer, const X&... options) {
    std::string text(layer);
    (text.append(", ").append(detail::value_text(options)), ...);
    check_hash_ = 3 * check_hash_ + detail::hash_of(text);
  }
  /// The hash of these options so far.
  std::uint64_t check_hash() const { return check_hash_; }

  /// Calls f(place, rows) for this rank's ranges, where `place` is the local index of their first
  /// row.
  template <class F>
  void for_each_range(const F& f) const {
    for (const Range& range : rows_.own()) f(own_.place(range.begin), range);
  }

  /// The forward pass of an operator over all rows.
  /// \param arguments those of distributed `forward` between the operator and the rows
  /// \throws as that
  template <class Op, class... Arguments>
  void forward(const Op& op, const Arguments&... arguments) {
    constexpr bool has_pass = requires { detail::forward_of(op, rows_, executor_, arguments...); };
    static_assert(has_pass, "fovea: this operator has no distributed forward pass");
    const Sharding rows = rows_.with_check_hash(check_hash_);
    meet([&] { detail::forward_of(op, rows, executor_, arguments...); });
  }
  /// The same for the backward pass.
  template <class Op, class... Arguments>
  void backward(const Op& op, const Arguments&... arguments) {
    constexpr bool has_pass = requires { detail::backward_of(op, rows_, executor_, arguments...); };
    static_assert(has_pass, "fovea: this operator has no distributed backward pass");
    const Sharding rows = rows_.with_check_hash(check_hash_);
    meet([&] { detail::backward_of(op, rows, executor_, arguments...); });
  }

  /// Adds all tokens to a sum, which starts with the value on the rank that has the first row.
  /// \param x one of the activations that are summed   \param sum dense rows, of which row r is at
  /// r sum.row
  /// \param rows number of its rows   \param least_rows the least number of rows in a message, if
  /// there are more   \param add called as add(to, rows, sequence, tokens): adds some of this
  /// rank's tokens to consecutive rows of the sum at `to`   \throws on all ranks what `add` throws
  /// on one; std::invalid_argument if a range of rows does not begin at a reduction block of tokens
  template <class X, class T, class Add>
  void sum_over_tokens(const View<X>& x, const Matrix<T>& sum, Index rows, Index least_rows,
                       const Add& add) {
    // This number of parts keeps all ranks busy most of the time.
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
      detail::check_collectively(rows_.ranks(), error, "a sum over tokens");
      for_each_part([&](Index part, T* to, Index count) { std::copy_n(state(part), count, to); });
    });
  }

  /// Calls f(all) with rows of this and other ranks: `all` [B, 1, N, C] has them at their positions
  /// in the sequence; no other rows of it may be read.
  /// \param layer for messages \param x [B, 1, own rows, C] of this rank
  /// \param block if not 1, a row of x stands for a block of that many tokens, whose first one this
  /// rank has, and N is the number of blocks
  /// \param needs called as needs(a rank's ranges) for all ranks, with equal results on all of
  /// them: the ranges of rows that the rank needs, as for FetchedRows
  /// \throws what f throws, and on all ranks what is thrown before f
  template <class T, class Needs, class F>
  void with_rows_of_others(const char* layer, const View<const T>& x, Index block,
                           const Needs& needs, const F& f) {
    std::optional<RowLayout> layout;
    std::shared_ptr<FetchedRows<T>> fetched;
    meet([&] {
      const auto check = [&] {
        layout.emplace(blocks_of(rows_.layout(), block));
        const Index own = layout->count(rows_.ranks().rank());
        fovea::detail::check_extent(layer, "x", x.shape(), 2, own, "the rows of this rank");
      };
      detail::run_call(rows_.with_check_hash(check_hash_), detail::CollectiveCall(layer, executor_),
                       fetch_text(layer, x, block), check, [&](const ExecutorRef& /*threads*/) {
                         fetched =
                             std::make_shared<FetchedRows<T>>(rows_.ranks(), *layout, x, needs);
                         return fetched;
                       });
    });
    f(fetched->rows());
  }

  /// This rank's communication statistics so far.
  CommStats comm_stats() const { return rows_.ranks().comm_stats() - before_; }
  /// Whether all ranks have thrown this exception together; not for other exceptions that a program
  /// throws after catching it.
  bool all_have_thrown(const std::exception_ptr& error) const { return error == thrown_by_all_; }

 private:
  /// Calls f, a collective call: what it throws, all ranks throw.
  template <class F>
  void meet(const F& f) {
    thrown_by_all_ = fovea::detail::caught(f);
    if (thrown_by_all_) std::rethrow_exception(thrown_by_all_);
  }

  template <class T>
  static std::string text_of(Index rows, Index columns, Index batch) {
    std::string text("a sum over tokens of ");
    text.append(std::to_string(rows)).append("x").append(std::to_string(columns));
    text.append(", ").append(std::to_string(sizeof(T))).append(" bytes per number, batch ");
    return text.append(std::to_string(batch));
  }

  template <class T>
  static std::string fetch_text(const char* layer, const View<T>& x, Index block) {
    std::string text(layer);
    text.append(" for neighbouring rows of ").append(detail::sizes_text(x));
    text.append(" (batch, heads, width), ").append(std::to_string(sizeof(T)));
    return text.append(" bytes per number, blocks of ").append(std::to_string(block));
  }

  const Sharding& rows_;
  E& executor_;
  PlacesInRanges own_;
  CommStats before_;                            // of earlier calls
  std::uint64_t check_hash_ = 0;                // by add_to_collective_check
  std::exception_ptr thrown_by_all_ = nullptr;  // in the last collective call
};

/// Calls layers over a sequence that is distributed over ranks; to be called on all ranks:
/// ```
/// distributed::sequence_parallel(rows, pool, [&](auto& over) {
///   block.forward(x, y, saved, over);
///   block.backward(x, saved, d_y, d_x, over);
/// });
/// ```
/// x, y and everything that a layer saves have this rank's rows, in ascending order; key lengths
/// count tokens of the whole sequence, and a bias or mask has a column for each of them. All ranks
/// have the same parameters, and the same gradients of them before and after. The bits are those of
/// a single process, for any number of ranks, if the ranges of rows begin at multiples of
/// kReductionBlock, as RowLayout's do. Forward passes accept any ranges, except that of MeanPool,
/// which is a sum, too.
///
/// Supported are all layers whose operators have distributed passes (include their headers) and
/// softmax_cross_entropy over tokens; others fail to compile, and so do decoders. All ranks have
/// the mean of MeanPool and the packed sequence of LunaLayer, and continue with them without
/// `over`. The memory sequence of CrossMultiHead is distributed like its tokens.
///
/// Cost: that of this rank's tokens; a sum passes through the ranks in up to four parts per rank,
/// and is then sent to all; rows of other ranks are received once in a pass. Memory: twice the
/// largest parameter, and the rows of this and other ranks that a layer reads.
/// \param rows the layout   \param executor this rank's executor
/// \param f called as f(over), with an executor for the layers; all ranks must call the same
/// \returns this rank's communication statistics
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
