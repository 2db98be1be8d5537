// SPDX-License-Identifier: MIT
/// \file
/// The pass and the call of the Fourier mixer over ranks, included by fourier_mixer.hpp.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/channel_all_to_all.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/rows/row_pairs.hpp"
#include "fovea/distributed/spectral/mixer_share.hpp"
#include "fovea/kernels/spectral/table.hpp"
#include "fovea/kernels/unit.hpp"
#include "fovea/spectral/fourier_mixer.hpp"
#include "fovea/spectral/mixer_steps.hpp"
#include "fovea/spectral/plan_cache.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One pass of a mixer; forward and backward are the same map.
template <class T>
class MixerPass final : public RankPass {
 public:
  /// Allocates all memory, and creates plans.
  /// \param x, out of this rank's rows, checked
  /// \param executor that of `run`
  /// \throws std::bad_alloc, what FftPlan does, and std::runtime_error if MPI fails
  MixerPass(const MixerOptions& options, const View<const T>& x, const View<T>& out,
            const Sharding& rows, const ExecutorRef& executor)
      : x_(x),
        out_(out),
        rows_(rows),
        sizes_{rows.count(), x.width()},
        shares_(detail::MixerShare::of_ranks(x.width(), rows.ranks().size())),
        pairs_(layout_of_pairs(rows.layout())),
        whole_(x.batch(), rows.count(), {{1, x.width()}}),
        messages_(rows.ranks(), whole_, {rows_to_pairs()}),
        own_sums_(x.batch() * own_pairs(), (x.width() + 1) * kElement),
        sums_(rows.ranks(), pairs_, x.batch(), ranges_of(&detail::MixerShare::sums)),
        made_(rows.ranks(), rows.layout(), x.batch(), ranges_of(&detail::MixerShare::columns)),
        sequences_(share().count(), sizes_.stride() * kElement),
        scratch_(memory_of(executor).take(
            worker_count(executor, (std::max)(row_tasks(), pair_tasks())), worker() * kElement)) {
    if (x.batch() * sizes_.rows * sizes_.width == 0) return;
    row_plan_ = fft_plan<T>({sizes_.width, FftDirection::forward, options.planning});
    column_plan_ = fft_plan<T>({sizes_.rows, FftDirection::forward, options.planning});
  }

  /// Computes this rank's rows.
  std::exception_ptr run(const ExecutorRef& executor) override {
    whole_.expect(rows_.own());
    whole_.put(0, x_, rows_.own());
    messages_.run();
    std::exception_ptr error = fovea::detail::caught([&] { sum_rows(executor); });
    sums_.bring(own_sums());
    if (!error) error = fovea::detail::caught([&] { mix_columns(executor); });
    made_.bring_back(error ? View<T>() : out_);
    return error;
  }

 private:
  static constexpr Index kElement = sizeof(T);
  /// Cost of one element, in multiply-adds: half of what a single process counts for both steps.
  static constexpr double kOfElement = 32;

  using Ranges = std::vector<std::vector<Range>>;

  /// [ranks] the values of a member of the shares.
  Ranges ranges_of(std::vector<Range> (detail::MixerShare::*of)() const) const {
    Ranges ranges;
    for (const detail::MixerShare& share : shares_) ranges.push_back((share.*of)());
    return ranges;
  }
  /// The messages that send each rank the rows of its pairs.
  ExchangePlan rows_to_pairs() const {
    return ExchangePlan::of(rows_.layout(), rows_.ranks().rank(), [&](int rank) {
      return rows_of_pairs(pairs_.of(rank), rows_.count());
    });
  }

  const detail::MixerShare& share() const {
    return shares_[static_cast<std::size_t>(rows_.ranks().rank())];
  }
  Index own_pairs() const { return pairs_.count(rows_.ranks().rank()); }
  /// Blocks of this rank's pairs of rows, in all sequences.
  Index row_blocks() const { return (own_pairs() + sizes_.kRows - 1) / sizes_.kRows; }
  Index row_tasks() const { return x_.batch() * row_blocks(); }
  /// Blocks of this rank's pairs of columns.
  Index pair_tasks() const { return (share().count() + sizes_.kPairs - 1) / sizes_.kPairs; }
  /// Scratch elements per worker.
  Index worker() const {
    return (std::max)(2 * sizes_.spectrum(),
                      (std::min)(sizes_.kPairs, share().count()) * sizes_.stride());
  }
  /// The sums of this rank's pairs of rows, [B, 1, own pairs, D + 1].
  View<T> own_sums() {
    return View<T>(own_sums_.template data<T>(), {x_.batch(), 1, own_pairs(), sizes_.width + 1});
  }

  /// The first step: the sums of this rank's pairs of rows.
  void sum_rows(const ExecutorRef& executor) {
    if (!row_plan_) return;
    std::vector<Index> pairs;  // [own pairs]
    for (const Range& range : pairs_.of(rows_.ranks().rank())) {
      for (Index n = range.begin; n < range.end; ++n) pairs.push_back(n);
    }
    const View<const T> x(whole_.tensor(0));
    const View<T> sums = own_sums();
    const MixerRows<T> rows{*row_plan_, x};
    auto&& threads =
        for_work(executor, [&] { return 2 * kOfElement * static_cast<double>(sums.size()); });
    for_each_task(threads, row_tasks(), [&](Index task, Index worker) {
      const Index b = task / row_blocks();
      const Index first = task % row_blocks() * sizes_.kRows;
      const Index end = (std::min)(first + sizes_.kRows, own_pairs());
      for (Index n = first; n < end; ++n) {
        rows.sum(b, pairs[static_cast<std::size_t>(n)], scratch(worker), &sums(b, 0, n, 0));
      }
    });
  }

  /// The second step: this rank's columns of the result.
  void mix_columns(const ExecutorRef& executor) {
    if (!column_plan_ || share().count() == 0) return;
    const View<T> columns = made_.slice();
    const Index row = columns.width();
    const Index first = share().first();
    // The columns of an omitted pair 0 would be at both ends, and are not written.
    const View<T> out(columns.data() - 2 * first,
                      {columns.batch(), 1, columns.rows(), share().width_of_columns()},
                      {columns.rows() * row, columns.rows() * row, row, 1});
    const MixerColumns<T> mixer{*column_plan_, out};
    T* const sequences = sequences_.template data<T>();
    auto&& threads =
        for_work(executor, [&] { return kOfElement * static_cast<double>(columns.size()); });
    for (Index b = 0; b < columns.batch(); ++b) {
      for_each_task(threads, sizes_.row_tasks(),
                    [&](Index task, Index /*worker*/) { unpack(b, task, sequences); });
      for_each_task(threads, pair_tasks(), [&](Index task, Index worker) {
        const Index begin = task * sizes_.kPairs;
        const Index count = (std::min)(sizes_.kPairs, share().count() - begin);
        mixer.mix(b, sequences + begin * sizes_.stride(), first + begin, count, scratch(worker));
      });
    }
  }

  /// Distributes the sums of a block of all row pairs to this rank's sequences.
  void unpack(Index b, Index task, T* sequences) {
    const View<T> sums = sums_.slice();
    const Index first = task * sizes_.kRows;
    const Index count = (std::min)(sizes_.kRows, sizes_.own_rows() - first);
    MixerKernels<T>().unpack_sums({&sums(b, 0, first, 0), sums.width(), first, count, sizes_.rows,
                                   share().width_of_sums(), share().count(), sequences,
                                   sizes_.stride()});
  }

  T* scratch(Index worker_number) { return scratch_.template data<T>() + worker_number * worker(); }

  View<const T> x_;
  View<T> out_;
  const Sharding& rows_;
  MixerSizes<T> sizes_;
  std::vector<detail::MixerShare> shares_;  // [ranks]
  RowLayout pairs_;                         // the assignment of row pairs to ranks
  RowTensors<T> whole_;                     // x
  Exchange messages_;
  Workspace own_sums_;       // [B, own pairs, D + 1]
  ChannelAllToAll<T> sums_;  // [B, 1, N / 2 + 1, 4 own pairs of columns]
  ChannelAllToAll<T> made_;  // [B, 1, N, own columns]
  Workspace sequences_;      // complex [own pairs of columns, N + 1]
  Workspace scratch_;
  std::shared_ptr<const FftPlan<T>> row_plan_;     // null if there is nothing to compute
  std::shared_ptr<const FftPlan<T>> column_plan_;  // likewise
};

template <class T>
CommStats mix(const FourierMixer& op, bool is_backward, const View<const T>& x, const View<T>& out,
              const Sharding& rows, const detail::CollectiveCall& call) {
  const char* const tensor = is_backward ? "d_out" : "x";
  std::string text(op.name());
  text.append(is_backward ? ".backward of " : ".forward of ").append(std::to_string(rows.count()));
  text.append(" rows, ").append(std::to_string(sizeof(T))).append(" bytes per number, ");
  text.append(tensor).append(" ").append(detail::sizes_text(x)).append(" (batch, heads, width)");
  const auto check = [&] {
    detail::check_own_rows(op.name(), tensor, x, rows);
    is_backward ? op.template check_backward<T>(x, out) : op.template check<T>(x, out);
    if (rows.count() <= FourierMixer::kMostElements) return;
    refuse(op.name(), "rows of the sequence", std::to_string(rows.count()),
           "at most " + std::to_string(FourierMixer::kMostElements) + ", the limit of FFTW");
  };
  return detail::run_call(rows, call, text, check, [&](const ExecutorRef& threads) {
    return std::make_unique<MixerPass<T>>(op.options, x, out, rows, threads);
  });
}

#define FOVEA_MIXER_CALL(Op, T)                                                                  \
  template CommStats mix(const Op&, bool, const View<const T>&, const View<T>&, const Sharding&, \
                         const detail::CollectiveCall&);
FOVEA_IN_FLOAT_UNIT(FOVEA_MIXER_CALL, FourierMixer)
FOVEA_IN_DOUBLE_UNIT(FOVEA_MIXER_CALL, FourierMixer)

}  // namespace distributed

FOVEA_NAMESPACE_END
