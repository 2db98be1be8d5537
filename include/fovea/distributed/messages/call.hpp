// SPDX-License-Identifier: MIT
/// \file
/// The checks of every call over a sharded sequence, and its description for the collective check.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fovea/attention/call/check.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/distributed/comm_stats.hpp"
#include "fovea/distributed/messages/options_text.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// Rejects packed sequences.
/// \throws std::invalid_argument
template <class In>
void check_sharded(const char* op, const In& in) {
  if (in.cu_seqlens_q.empty() && in.cu_seqlens_k.empty()) return;
  refuse_given(op, "cu_seqlens", "the sequence is distributed over ranks");
}

/// Rejects the gradient of a bias.
/// \throws std::invalid_argument
template <class Grads>
void check_sharded_grads(const char* op, const Grads& grads) {
  if (grads.bias.empty()) return;
  refuse_given(op, "the gradient of bias", "the sequence is distributed over ranks");
}

/// This rank's tensor must have as many rows as the rank holds.
/// \throws std::invalid_argument
template <class T>
void check_own_rows(const char* op, const char* tensor, const View<T>& x, const Sharding& rows) {
  if (x.rows() == rows.own_count()) return;
  std::string expected = std::to_string(rows.own_count());
  expected.append(", the rows of rank ").append(std::to_string(rows.ranks().rank()));
  refuse_extent(op, tensor, x.shape(), 2, expected);
}

/// Gradients of weights are sums over tokens, passed from range to range by whole reduction blocks.
/// \param which the gradients, as text   \throws std::invalid_argument if a range of rows does not
/// begin at a reduction block
inline void check_scan_begins(const char* op, const char* which, const Sharding& rows) {
  for (const Range& range : rows.own()) {
    if (range.begin % kReductionBlock == 0) continue;
    refuse(op, "the first row of a range", std::to_string(range.begin),
           std::string("a multiple of ")
               .append(std::to_string(kReductionBlock))
               .append(", the reduction block of ")
               .append(which));
  }
}

/// A type-erased operator and executor of a distributed call. Both must outlive it.
class CollectiveCall {
 public:
  /// \param op the operator, or a name   \param executor as in an operator's `forward`
  template <class Op, class E>
  CollectiveCall(const Op& op, E& executor)
      : name_(name_of(op)),
        options_(options_text(op)),
        executor_(fovea::detail::address_of(executor)),
        with_executor_([](void* of, FunctionRef<void(const ExecutorRef&)> use) {
          auto&& held = for_call(*static_cast<E*>(of));
          use(held);
        }) {}

  /// The name in messages.
  const char* name() const { return name_; }
  /// The description of a call, with the options, equal on all ranks.
  std::string text(const std::string& call) const { return call + options_; }
  /// Calls use(executor). \throws what for_call does, also std::bad_alloc
  void with_executor(FunctionRef<void(const ExecutorRef&)> use) const {
    with_executor_(executor_, use);
  }

 private:
  const char* name_;
  std::string options_;
  void* executor_;
  void (*with_executor_)(void*, FunctionRef<void(const ExecutorRef&)>);
};

/// Makes a collective call: checks, prepares and runs it. If one rank throws, all throw the same,
/// after sending the messages that others wait for.
/// \param call a description of the call, equal on all ranks
/// \param check checks this rank's arguments
/// \param prepare allocates all memory; differing plan numbers are rejected
/// \param beside as in `check_collectively`   \returns this rank's communication statistics
inline CommStats run_call(const Communicator& ranks, const CollectiveCall& of,
                          const std::string& call, FunctionRef<void()> check,
                          FunctionRef<std::shared_ptr<RankPass>(const ExecutorRef&)> prepare,
                          std::uint64_t beside = 0) {
  together(ranks, of.text(call), check, beside);
  const CommStats before = ranks.comm_stats();
  bool has_executor = false;
  const std::exception_ptr error = fovea::detail::caught([&] {
    of.with_executor([&](const ExecutorRef& threads) {
      has_executor = true;
      std::shared_ptr<RankPass> pass;
      const std::exception_ptr unprepared = fovea::detail::caught([&] {
        pass = prepare(threads);
        memory_of(threads).require();
      });
      check_collectively(ranks, unprepared, of.name(), unprepared ? 0 : pass->plan_number());
      check_collectively(ranks, pass->run(threads), of.name());
    });
  });
  // A rank whose executor is rejected joins the others' check after preparing.
  if (!has_executor) check_collectively(ranks, error, of.name());
  if (error) std::rethrow_exception(error);
  return ranks.comm_stats() - before;
}

/// The same for the ranks of a sequence.
inline CommStats run_call(const Sharding& rows, const CollectiveCall& of, const std::string& call,
                          FunctionRef<void()> check,
                          FunctionRef<std::shared_ptr<RankPass>(const ExecutorRef&)> prepare) {
  return run_call(rows.ranks(), of, call, check, prepare, rows.number());
}

/// The same for a ShardedForwardCall or ShardedBackwardCall.
template <class Call>
CommStats run_call(const Call& call, const std::string& text, FunctionRef<void()> check,
                   FunctionRef<std::shared_ptr<RankPass>(const ExecutorRef&)> prepare) {
  return run_call(call.rows, call.collective, text, check, prepare);
}

/// Checks this rank's arguments of a ShardedForwardCall or ShardedBackwardCall.
/// \param check_tensors called with the inputs, without key lengths, which refer to the whole
/// sequence \throws std::invalid_argument
template <class Call, class Check>
void check_call(const Call& call, const Check& check_tensors) {
  const char* const op = call.collective.name();
  const auto& in = call.inputs;
  const Sharding& rows = call.rows;
  if constexpr (requires { in.cu_seqlens_q; }) check_sharded(op, in);
  const char* first = "v";  // of the tensors with the sequence's rows
  if constexpr (requires { in.q; }) {
    first = "q";
    check_own_rows(op, "q", in.q, rows);
    check_own_rows(op, "k", in.k, rows);
  } else if constexpr (requires { in.qk; }) {
    first = "qk";
    check_own_rows(op, "qk", in.qk, rows);
  }
  check_own_rows(op, "v", in.v, rows);
  auto own = in;
  own.key_lengths = {};
  if constexpr (requires { own.first_positions; }) {
    check_first_positions(op, in);
    own.first_positions = {};
  }
  check_tensors(own);
  fovea::detail::check_key_lengths(op, in.key_lengths, in.v.batch(), first, rows.count(),
                                   "the sequence");
}

/// Describes the integer lists that are given among the inputs, such as key lengths.
template <class In>
std::string numbers_text(const In& in) {
  std::string text;
  for_each_member(in, [&](const auto& member) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(member)>, IndexSpan>) {
      if (!member.empty()) text.append(", lengths or positions ").append(value_text(member));
    }
  });
  return text;
}

/// Describes the parts of a ShardedForwardCall or ShardedBackwardCall that must be equal on all
/// ranks.
template <class Call>
std::string call_text(const Call& call) {
  const auto& in = call.inputs;
  using T = typename std::remove_cvref_t<decltype(in.v)>::Scalar;
  std::string text(call.collective.name());
  text.append(Call::kPass).append(" of ").append(std::to_string(call.rows.count()));
  text.append(" rows, ").append(std::to_string(sizeof(T))).append(" bytes per number");
  const auto add = [&](const char* name, const auto& x) {
    text.append(", ").append(name).append(" ").append(sizes_text(x));
  };
  if constexpr (requires { in.q; }) {
    add("q", in.q), add("k", in.k), add("v", in.v);
  } else {
    in.for_each_tensor(add);
  }
  text.append(" (batch, heads, width)").append(numbers_text(in));
  if constexpr (requires { in.bias; }) {
    if (!in.bias.empty()) text.append(", bias ").append(sizes_text(in.bias));
    if (!in.mask.empty()) text.append(", mask ").append(sizes_text(in.mask));
    if (!in.sink.empty()) text.append(", sinks");
    if (!in.alibi_slopes.empty()) text.append(", ALiBi ").append(value_text(in.alibi_slopes));
  }
  return text;
}

/// Names those of some tensors that are given, which must be the same on all ranks.
/// \param before what is said before each name
template <class Tensors>
std::string given_text(const Tensors& of, const char* before = ", ") {
  std::string text;
  of.for_each_tensor([&](const char* name, const auto& x) {
    if (!x.empty()) text.append(before).append(name);
  });
  return text;
}

/// Calls f(tensor) for the tensors of some inputs, of saved state or of gradients, or for a single
/// tensor, that have the rows of the sequence.
template <class Tensors, class F>
void for_each_row_tensor(Tensors& of, const F& f) {
  if constexpr (requires { of.strides(); }) f(of);
  if constexpr (requires { of.d_out; }) f(of.d_out), f(of.d_lse);
  if constexpr (requires { of.q; }) f(of.q), f(of.k), f(of.v);
  if constexpr (requires { of.qk; }) f(of.qk), f(of.v);
  if constexpr (requires { of.bias; }) f(of.bias);
  if constexpr (requires { of.mask; }) f(of.mask);
  if constexpr (requires { of.beta; }) f(of.beta);
  if constexpr (requires { of.indices; }) f(of.indices);
  if constexpr (requires { of.draws; }) f(of.sketch_q), f(of.sketch_k), f(of.draws);
  if constexpr (requires { of.global_q; }) f(of.global_q), f(of.global_k), f(of.global_v);
  if constexpr (requires { of.lse; }) f(of.lse);
  if constexpr (requires { of.round_lse; }) f(of.round_lse);
  if constexpr (requires { of.near_out; }) f(of.near_out), f(of.near_lse);
}

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
