// SPDX-License-Identifier: MIT
/// \file
/// Entries of Luna attention: both of its steps, as one pass.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/entries/softmax_entry.hpp"
#include "fovea/attention/luna.hpp"

namespace bench {

namespace {

constexpr Index kPacked = 256;  // P

/// A call of both steps of Luna attention, for packed rows of each key head. The keys of the packed
/// rows, whose projection is none of the operator's work, are their queries.
template <class T>
struct LunaCall {
  LunaCall(const AllInputs<T>& all, const View<T>& to)
      : in(all),
        rows(gaussians<T>(6, 0, in.k.heads() * kPacked * in.k.width())),
        packed_data(Training<T>::size(in.k.heads() * kPacked * in.v.width())),
        out(to),
        packed(packed_data.data(), {1, in.k.heads(), kPacked, in.v.width()}) {
    in.q = View<const T>(rows.data(), {1, in.k.heads(), kPacked, in.k.width()});
    of_tokens = {.q = all.q, .k = in.q, .v = packed};
  }
  LunaCall(const LunaCall&) = delete;
  LunaCall& operator=(const LunaCall&) = delete;

  void forward(ThreadPool& pool) const {
    fovea::LunaPack{}.forward(in, packed, pool);
    fovea::LunaUnpack{}.forward(of_tokens, out, pool);
  }

  /// The unit of a row has that of the values that it attends to, beside its own.
  Error error(Index samples) const {
    const auto all = [](Index) { return true; };
    std::vector<T> sizes;
    std::vector<T> values;
    for (Index h = 0; h < in.k.heads(); ++h) {
      for (Index p = 0; p < kPacked; ++p) {
        const RowReference<T> truth = softmax_row(in, h, p, all);
        for (const Wide<T> x : truth.out) values.push_back(static_cast<T>(x));
        for (const Wide<T> x : truth.unit) sizes.push_back(static_cast<T>(x));
      }
    }
    AllInputs<T> truly = of_tokens;
    truly.v = View<const T>(values.data(), packed.shape());
    AllInputs<T> magnitudes = of_tokens;
    magnitudes.v = View<const T>(sizes.data(), packed.shape());
    return sampled_error<T>(truly, out, samples,
                            [&](const AllInputs<T>& of, Index head, Index row) {
                              RowReference<T> truth = softmax_row(of, head, row, all);
                              const RowReference<T> more = softmax_row(magnitudes, head, row, all);
                              for (std::size_t c = 0; c < truth.unit.size(); ++c)
                                truth.unit[c] += more.out[c];
                              return truth;
                            });
  }

  AllInputs<T> in;  // q: the packed rows
  std::vector<T> rows, packed_data;
  View<T> out, packed;
  AllInputs<T> of_tokens;
};

/// Its backward pass.
template <class T>
struct LunaTraining {
  LunaTraining(const AllInputs<T>& in, const View<T>& out)
      : call(in, out), pack(call.in, call.packed), unpack(call.of_tokens, out) {
    fovea::LunaPack{}.forward(call.in, call.packed, pack.saved);
    fovea::LunaUnpack{}.forward(call.of_tokens, out, unpack.saved);
  }
  void backward(ThreadPool& pool) const {
    fovea::LunaUnpack{}.backward(call.of_tokens, call.out, unpack.saved, unpack.d_out, unpack.grads,
                                 pool);
    fovea::LunaPack{}.backward(call.in, call.packed, pack.saved, unpack.grads.v, pack.grads, pool);
  }

  LunaCall<T> call;
  Training<T> pack, unpack;
};

/// Both steps of Luna attention, as one pass.
Entry luna_entry(Names names, std::vector<Family> families) {
  const bool is_backward = names.pass == Pass::backward;
  const auto runner = [=]<class T>(T) {
    const auto prepare = [=](const AllInputs<T>& in, const View<T>& out) {
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      if (is_backward) {
        const auto work = std::make_shared<const LunaTraining<T>>(in, out);
        return Prepared{[=](ThreadPool& pool) { work->backward(pool); }, {}};
      }
#endif
      const auto call = std::make_shared<const LunaCall<T>>(in, out);
      return Prepared{[=](ThreadPool& pool) { call->forward(pool); },
                      [=](Index samples) { return call->error(samples); }};
    };
    return Runner<T>{prepare, [=](const AttentionShape& shape, Index workers) {
                       AttentionShape pack = shape;
                       pack.query_heads = shape.key_heads;
                       pack.queries = kPacked;
                       AttentionShape unpack = shape;
                       unpack.keys = kPacked;
                       const auto most = [&](const auto& bytes) {
                         return std::max(bytes(fovea::LunaPack{}, pack),
                                         bytes(fovea::LunaUnpack{}, unpack));
                       };
                       return is_backward ? most([&](const auto& step, const AttentionShape& s) {
                         return step.template backward_workspace_bytes<T>(s, workers);
                       })
                                          : most([&](const auto& step, const AttentionShape& s) {
                                              return step.template workspace_bytes<T>(s, workers);
                                            });
                     }};
  };
  Entry entry{std::move(names),
              [](const AttentionShape& s) { return s.query_heads * s.queries * kPacked; },
              runner(float{}), double_runner(runner), std::move(families)};
  entry.own_flops = [is_backward](const AttentionShape& s) {
    const auto tokens = static_cast<double>(s.query_heads * s.queries + s.key_heads * s.keys);
    return (is_backward ? 2.5 : 1) * 2 * static_cast<double>(kPacked) * tokens *
           static_cast<double>(s.width + s.value_width);
  };
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
