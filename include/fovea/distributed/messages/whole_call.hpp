// SPDX-License-Identifier: MIT
/// \file
/// Calls whose query rows are not at the positions of their keys: row r is held by the rank that
/// holds key r, but attends around another position. Every rank gets all rows and computes the
/// whole call, and keeps its own rows. Also whether a bias or mask has one row for all queries,
/// which ranks determine together, since a rank that holds a single row cannot tell.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/patterns/pattern.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// Which of bias and mask have one row for all queries. If no rank holds more than one row, none
/// has.
struct BroadcastLogits {
  bool bias = false;  ///< whether the bias has
  bool mask = false;  ///< whether the mask has

  /// Determines it collectively. \throws std::runtime_error if MPI fails
  template <class In>
  static BroadcastLogits of(const In& in, const Sharding& rows) {
    const auto any_has = [&](const auto& x) {
      const bool has = x.rows() == 1 && rows.own_count() > 1;
      return lowest_rank(rows.ranks(), has) < rows.ranks().size();
    };
    BroadcastLogits all;
    all.bias = any_has(in.bias);
    all.mask = any_has(in.mask);
    return all;
  }

  /// Rejects separate rows on this rank if another has one for all, and the gradient of such a
  /// bias, a sum over the rows of all ranks. \throws std::invalid_argument
  template <class In>
  void check(const char* op, const In& in, bool wants_gradient) const {
    const auto check_rows = [&](const char* tensor, const auto& x, bool has_one_row) {
      if (!has_one_row || x.rows() <= 1) return;
      refuse_extent(op, tensor, x.shape(), 2,
                    "1, the rows of " + std::string(tensor) + " on another rank");
    };
    check_rows("bias", in.bias, bias);
    check_rows("mask", in.mask, mask);
    if (!bias || !wants_gradient) return;
    refuse_given(
        op, "the gradient of bias",
        "bias has one row for all queries, and sums over distributed rows are not computed");
  }
};

/// Whether some query row of the sequence is at another position than its key. All ranks give the
/// same answer if their options, key lengths and first positions are the same.
template <class In>
bool are_rows_moved(const In& in, CausalAlignment alignment, const Sharding& rows) {
  if (!in.first_positions.empty()) {
    return std::any_of(in.first_positions.begin(), in.first_positions.end(),
                       [](Index first) { return first != 0; });
  }
  return alignment == CausalAlignment::key_length &&
         std::any_of(in.key_lengths.begin(), in.key_lengths.end(),
                     [&](Index length) { return length != rows.count(); });
}

/// The collective properties of a sharded tensor.
struct WholeShape {
  bool is_given = false;    ///< whether a rank passes it; ranks without rows need not
  bool is_one_row = false;  ///< whether it has one row for all queries, on every rank
  Shape shape = {};         ///< of all rows; the width is that of the widest

  /// Determines it collectively. \throws std::runtime_error if MPI fails
  template <class X>
  static WholeShape of(const View<X>& own, const Sharding& rows) {
    const Shape& s = own.empty() ? Shape{} : own.shape();
    std::array<std::int64_t, 5> most = {
        own.empty() ? 0 : 1, own.rows() == 1 && rows.own_count() > 1 ? 1 : 0, s[0], s[1], s[3]};
    rows.ranks().check(
        MPI_Allreduce(MPI_IN_PLACE, most.data(), 5, MPI_INT64_T, MPI_MAX, rows.ranks().mpi()),
        "MPI_Allreduce");
    return {most[0] != 0, most[1] != 0, {most[2], most[3], rows.count(), most[4]}};
  }
};

/// All rows of the tensors of one call.
class WholeTensors {
 public:
  /// \param rows must outlive this object
  explicit WholeTensors(const Sharding& rows) : rows_(rows) {}
  WholeTensors(const WholeTensors&) = delete;
  WholeTensors& operator=(const WholeTensors&) = delete;

  /// Creates an input tensor of all rows, which `bring` fills.
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class X>
  void reads(View<X>& x, const WholeShape& as) {
    if (!as.is_given || as.is_one_row) return;
    auto made = std::make_unique<Read<std::remove_const_t<X>>>(rows_, x, as.shape);
    x = made->tensors.tensor(0);
    read_.push_back(std::move(made));
  }
  /// Creates an output tensor of all rows, from which `keep` copies the rank's.
  /// \throws std::bad_alloc
  template <class X>
  void writes(View<X>& x) {
    if (x.empty() || x.rows() != rows_.own_count()) return;
    const auto& [batch, heads, unused, width] = x.shape();
    auto made =
        std::make_unique<Written<X>>(x, RowTensors<X>(batch, rows_.count(), {{heads, width}}));
    x = made->tensors.tensor(0);
    written_.push_back(std::move(made));
  }

  /// Gathers the rows of all ranks. Collective.
  void bring() {
    for (const auto& tensor : read_) tensor->bring(rows_);
  }
  /// Writes the rows of this rank.
  void keep() const {
    for (const auto& tensor : written_) tensor->keep(rows_);
  }

 private:
  struct AnyRead {
    virtual ~AnyRead() = default;
    virtual void bring(const Sharding& rows) = 0;
  };
  template <class X>
  struct Read final : AnyRead {
    Read(const Sharding& rows, const View<const X>& x, const Shape& shape)
        : own(x),
          tensors(shape[0], rows.count(), {{shape[1], shape[3]}}),
          exchange(rows.ranks(), tensors,
                   {ExchangePlan::of(rows.layout(), rows.ranks().rank(), [&](int /*rank*/) {
                     return std::vector<Range>{{0, rows.count()}};
                   })}) {}
    void bring(const Sharding& rows) override {
      const View<X> whole = tensors.tensor(0);
      Index at = 0;
      for (const Range& range : rows.own()) {
        for (Index n = range.begin; n < range.end; ++n, ++at) put_row(whole, n, at);
      }
      exchange.run();
    }
    void put_row(const View<X>& whole, Index n, Index at) const {
      for (Index b = 0; b < whole.batch(); ++b) {
        for (Index h = 0; h < whole.heads(); ++h) {
          for (Index c = 0; c < own.width(); ++c) whole(b, h, n, c) = own(b, h, at, c);
          // Lists of keys may be longer on other ranks.
          if constexpr (std::same_as<X, Index>) {
            for (Index c = own.width(); c < whole.width(); ++c) whole(b, h, n, c) = -1;
          }
        }
      }
    }

    View<const X> own;
    RowTensors<X> tensors;
    Exchange exchange;
  };

  struct AnyWritten {
    virtual ~AnyWritten() = default;
    virtual void keep(const Sharding& rows) const = 0;
  };
  template <class X>
  struct Written final : AnyWritten {
    Written(const View<X>& x, RowTensors<X> of_all) : own(x), tensors(std::move(of_all)) {}
    void keep(const Sharding& rows) const override { tensors.get(0, own, rows.own()); }

    View<X> own;
    RowTensors<X> tensors;
  };

  const Sharding& rows_;
  std::vector<std::unique_ptr<AnyRead>> read_;
  std::vector<std::unique_ptr<AnyWritten>> written_;
};

/// One pass over all rows. \tparam Compute called as compute(executor), computes the whole call
template <class Compute>
class WholePass final : public RankPass {
 public:
  /// \param tensors with memory allocated
  WholePass(std::unique_ptr<WholeTensors> tensors, Compute compute)
      : tensors_(std::move(tensors)), compute_(std::move(compute)) {}

  /// Gathers rows, computes, keeps this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    tensors_->bring();
    return fovea::detail::caught([&] {
      compute_(executor);
      tensors_->keep();
    });
  }

 private:
  std::unique_ptr<WholeTensors> tensors_;
  Compute compute_;
};

/// Creates a WholePass. \param compute as for WholePass
template <class Compute>
std::shared_ptr<RankPass> whole_pass(std::unique_ptr<WholeTensors> tensors, Compute compute) {
  return std::make_shared<WholePass<Compute>>(std::move(tensors), std::move(compute));
}

/// Makes a call in which each rank computes all rows.
/// \param text, check as in run_call
/// \param read, written the tensors that the call reads and writes: views, or structs of some,
/// which all ranks have or none. The inputs are first \param compute called as compute(read...,
/// written..., executor), computes the whole call
template <class... Read, class... Written, class Compute>
CommStats run_whole_call(const Sharding& rows, const CollectiveCall& call, std::string text,
                         FunctionRef<void()> check, const std::tuple<Read...>& read,
                         const std::tuple<Written...>& written, const Compute& compute) {
  text.append(", rows on other ranks than their keys");
  together(rows.ranks(), call.text(text), check);
  std::vector<WholeShape> shapes;
  const auto add = [&](const auto& x) { shapes.push_back(WholeShape::of(x, rows)); };
  std::apply([&](const auto&... of) { (for_each_row_tensor(of, add), ...); }, read);
  const auto& inputs = std::get<0>(read);
  BroadcastLogits one_row;
  if constexpr (requires { inputs.bias; }) one_row = BroadcastLogits::of(inputs, rows);
  const auto check_one_row = [&] {
    if constexpr (requires { inputs.bias; }) {
      const auto& results = std::get<0>(written);
      bool wants_gradient = false;
      if constexpr (requires { results.bias; }) wants_gradient = !results.bias.empty();
      one_row.check(call.name(), inputs, wants_gradient);
    }
  };
  return run_call(rows, call, text, check_one_row, [&](const ExecutorRef& /*threads*/) {
    auto tensors = std::make_unique<WholeTensors>(rows);
    std::tuple<Read...> in = read;
    std::tuple<Written...> out = written;
    auto as = shapes.begin();
    const auto reads = [&](auto& x) { tensors->reads(x, *as++); };
    const auto writes = [&](auto& x) { tensors->writes(x); };
    std::apply([&](auto&... of) { (for_each_row_tensor(of, reads), ...); }, in);
    std::apply([&](auto&... of) { (for_each_row_tensor(of, writes), ...); }, out);
    return whole_pass(std::move(tensors), [compute, in, out](const ExecutorRef& threads) {
      std::apply(compute, std::tuple_cat(in, out, std::tie(threads)));
    });
  });
}

/// Makes a ShardedForwardCall or ShardedBackwardCall: each rank computes its rows, or all rows if
/// some query row of the sequence is at another position than its key. \param text, check, prepare
/// as in run_call   \param compute as in run_whole_call
template <class Call, class Compute>
CommStats run_call(const Call& call, CausalAlignment alignment, const std::string& text,
                   FunctionRef<void()> check, const Compute& compute,
                   FunctionRef<std::shared_ptr<RankPass>(const ExecutorRef&)> prepare) {
  if (!are_rows_moved(call.inputs, alignment, call.rows)) {
    return run_call(call, text, check, prepare);
  }
  return run_whole_call(call.rows, call.collective, text, check, call.read(), call.written(),
                        compute);
}

/// The same for a backward pass of softmax attention.
/// \param prepare called as prepare(threads, one_row)
template <class Call, class Compute, class Prepare>
CommStats run_backward_call(const Call& call, CausalAlignment alignment, const std::string& text,
                            FunctionRef<void()> check, const Compute& compute,
                            const Prepare& prepare) {
  BroadcastLogits one_row;
  const bool has_logits = !call.inputs.bias.empty() || !call.inputs.mask.empty();
  if (has_logits && !are_rows_moved(call.inputs, alignment, call.rows)) {
    together(call.rows.ranks(), call.collective.text(text), check);
    one_row = BroadcastLogits::of(call.inputs, call.rows);
  }
  const auto check_all = [&] {
    check();
    one_row.check(call.collective.name(), call.inputs, !call.grads.bias.empty());
  };
  return run_call(call, alignment, text, check_all, compute,
                  [&](const ExecutorRef& threads) { return prepare(threads, one_row); });
}

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
