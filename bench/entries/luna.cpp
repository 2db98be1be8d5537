// SPDX-License-Identifier: MIT
/// \file
/// Entries of Luna attention: both of its steps, as one pass.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/entries/pass_entry.hpp"
#include "fovea/attention/luna.hpp"

namespace bench {

namespace {

constexpr Index kPacked = 256;  // P

/// A call of both steps of Luna attention, for packed rows of each key head. The keys of the packed
/// rows are their queries, since projections are not part of the operator. \tparam S of the tensors
template <class T, class S = T>
struct LunaCall {
  LunaCall(const AllInputs<T>& all, const View<T>& to)
      : rows(gaussians<T>(6, 0, all.k.heads() * kPacked * all.k.width())),
        packed_data(static_cast<std::size_t>(all.k.heads() * kPacked * all.v.width())),
        in(packing(all)),
        out(to),
        packed(packed_data.data(), {1, in.k.heads(), kPacked, in.v.width()}),
        of_tokens{.q = all.q, .k = in.q, .v = packed},
        pack(in, packed),
        unpack(of_tokens, out) {}
  LunaCall(const LunaCall&) = delete;
  LunaCall& operator=(const LunaCall&) = delete;

  void forward(ThreadPool& pool) const {
    fovea::LunaPack{}.forward(pack.inputs, pack.out, pool);
    AllInputs<S> tokens = unpack.inputs;
    tokens.v = pack.out;
    fovea::LunaUnpack{}.forward(tokens, unpack.out, pool);
  }

  /// Of the packed rows, and of the rows that attend to them as they are.
  Error error(Index samples) const {
    pack.widen();
    unpack.widen();
    const auto truth = softmax_of_all<T>(in.q.width());
    Error error = softmax_error<T>(truth, in, packed, samples, rounding_to<S, T>());
    error.add(softmax_error<T>(truth, of_tokens, out, samples, rounding_to<S, T>()));
    return error;
  }

  /// The inputs of the first step, of whose queries S has every number.
  AllInputs<T> packing(const AllInputs<T>& all) {
    for (T& x : rows) x = static_cast<T>(static_cast<S>(x));
    AllInputs<T> made = all;
    made.q = View<const T>(rows.data(), {1, all.k.heads(), kPacked, all.k.width()});
    return made;
  }

  std::vector<T> rows, packed_data;
  AllInputs<T> in;  // q: the packed rows
  View<T> out, packed;
  AllInputs<T> of_tokens;
  StoredCall<S, T> pack, unpack;
};

/// Its backward pass.
template <class T>
struct LunaTraining {
  LunaTraining(const AllInputs<T>& in, const View<T>& out)
      : call(in, out), pack(call.in, call.packed.shape()), unpack(call.of_tokens, out.shape()) {
    fovea::LunaPack{}.forward(call.in, call.packed, pack.saved);
    fovea::LunaUnpack{}.forward(call.of_tokens, out, unpack.saved);
  }
  void backward(ThreadPool& pool) const {
    fovea::LunaUnpack{}.backward(call.of_tokens, call.out, unpack.saved, unpack.d_out, unpack.grads,
                                 pool);
    fovea::LunaPack{}.backward(call.in, call.packed, pack.saved, unpack.grads.v, pack.grads, pool);
  }

  LunaCall<T> call;
  Training<fovea::LunaPack, T> pack;
  Training<fovea::LunaUnpack, T> unpack;
};

/// Both steps of Luna attention, as one pass.
Entry luna_entry(Names names, std::vector<Family> families) {
  const bool is_backward = names.pass == Pass::backward;
  const double passes = passes_of_forward(names.pass, 2.5);
  const auto runner = [=]<class T, class S = T>(T, S = S{}) {
    const auto prepare = [=](const AllInputs<T>& in, const View<T>& out) {
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      if (is_backward) {
        const auto work = std::make_shared<const LunaTraining<T>>(in, out);
        return Prepared{[=](ThreadPool& pool) { work->backward(pool); }, {}};
      }
#endif
      const auto call = std::make_shared<const LunaCall<T, S>>(in, out);
      return Prepared{[=](ThreadPool& pool) { call->forward(pool); },
                      [=](Index samples) { return call->error(samples); }};
    };
    return Runner<T>{prepare, [=](const AttentionShape& shape, Index workers) {
                       AttentionShape pack = shape;
                       pack.query_heads = shape.key_heads;
                       pack.queries = kPacked;
                       AttentionShape unpack = shape;
                       unpack.keys = kPacked;
                       const auto bytes = [=](const auto& step, const AttentionShape& s) {
                         return is_backward ? step.template backward_workspace_bytes<T>(s, workers)
                                            : step.template workspace_bytes<S>(s, workers);
                       };
                       return std::max(bytes(fovea::LunaPack{}, pack),
                                       bytes(fovea::LunaUnpack{}, unpack));
                     }};
  };
  Entry entry{std::move(names),
              [](const AttentionShape& s) { return s.query_heads * s.queries * kPacked; },
              runner(float{}), double_runner(runner), std::move(families)};
  entry.own_flops = [passes](const AttentionShape& s) {
    const auto tokens = static_cast<double>(s.query_heads * s.queries + s.key_heads * s.keys);
    return passes * 2 * static_cast<double>(kPacked) * tokens *
           static_cast<double>(s.width + s.value_width);
  };
  if (!is_backward) add_stored_runners(entry, runner);
  return entry;
}

}  // namespace

std::vector<Entry> luna_entries() {
  const std::vector<Family> families = {{.lengths = {4096, 16384}},
                                        {.scalar = Scalar::f64, .lengths = {4096}},
                                        {.threads = 2, .lengths = {16384}}};
  // clang-format off
  return {
      luna_entry({"luna", "256", "Luna, 256"}, families),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      luna_entry({"luna", "256", "", Pass::backward}, families),
#endif
  };
  // clang-format on
}

}  // namespace bench
