// SPDX-License-Identifier: MIT
/// \file
/// The Fourier mixer over a sequence that is spread over ranks: each rank transforms some pairs of
/// rows, and then all rows of some pairs of columns. It needs FFTW, too, so fovea/distributed.hpp
/// leaves it out.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/channel_slices.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/rows/row_pairs.hpp"
#include "fovea/kernels/spectral/table.hpp"
#include "fovea/spectral/fourier_mixer.hpp"
#include "fovea/spectral/mixer_steps.hpp"
#include "fovea/spectral/plan_cache.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// The pairs of columns [begin, end) of a mixer of `width` columns.
///
/// Pair j reads the sums 2j, 2j + 1, D - 2j - 1 and D - 2j of a row, and gives the columns of these
/// numbers, as far as no other pair does. So what neighbouring pairs read is two ranges, and what
/// they give is two. Side by side, these are what the last pairs of a narrower mixer read and give,
/// and the kernels are called with its width.
struct MixerShare {
  Index width = 0;  ///< D
  Index begin = 0;  ///< the first pair
  Index end = 0;    ///< one past the last pair

  /// The shares of all ranks: each has as many pairs as may be of the same.
  static std::vector<MixerShare> of_ranks(Index width, int ranks) {
    const Index pairs = width == 0 ? 0 : mixer_pairs(width);
    std::vector<MixerShare> shares;
    for (Index rank = 0; rank < ranks; ++rank) {
      shares.push_back({width, pairs * rank / ranks, pairs * (rank + 1) / ranks});
    }
    return shares;
  }

  /// The number of pairs.
  Index count() const { return end - begin; }
  /// The sums of a row that the pairs read: their own, and those of their mirror images.
  std::vector<Range> sums() const {
    if (count() == 0) return {};
    return {{2 * begin, 2 * end}, {width - 2 * end + 1, width - 2 * begin + 1}};
  }
  /// The columns of the result that the pairs give, likewise.
  std::vector<Range> columns() const {
    if (count() == 0) return {};
    const Index own = width / 2 + 1;  // columns that are no mirror image
    return {{2 * begin, (std::min)(2 * end, own)},
            {(std::max)(width - 2 * end + 1, own), (std::min)(width - 2 * begin + 1, width)}};
  }

  /// The width of the mixer whose row of sums is `sums()`, side by side. It has no other pairs.
  Index width_of_sums() const { return 4 * count() - 1; }
  /// The first of these pairs in the mixer that gives `columns()`, side by side. Pair 0 gives one
  /// column less than others, so it is left out there if it is not one of these.
  Index first() const { return begin == 0 ? 0 : 1; }
  /// The width of that mixer. Its last pair gives four columns, unless these pairs are the last of
  /// the whole one, too.
  Index width_of_columns() const {
    const bool is_last = end == mixer_pairs(width);
    return is_last ? width - 4 * (begin - first()) : 4 * (first() + count()) - 1;
  }
};

/// What is the same on all ranks of a call, in words.
template <class T>
std::string mixer_text(const char* pass, const char* tensor, const View<const T>& x,
                       const Rows& rows) {
  std::string text(FourierMixer::name());
  text.append(pass).append(" of ").append(std::to_string(rows.count())).append(" rows, ");
  text.append(std::to_string(sizeof(T))).append(" bytes a number, ").append(tensor).append(" ");
  return text.append(sizes_text(x)).append(" (batch, heads, width)");
}

/// Checks what this rank brings to a mixer. \param check_tensors checks its tensors
/// \throws std::invalid_argument
template <class T, class Check>
void check_mixer(const char* tensor, const View<const T>& x, const Rows& rows,
                 const Check& check_tensors) {
  const char* const name = FourierMixer::name();
  check_own_rows(name, tensor, x, rows);
  check_tensors();
  if (rows.count() <= FourierMixer::kMostElements) return;
  refuse(name, "rows of the sequence", std::to_string(rows.count()),
         "at most " + std::to_string(FourierMixer::kMostElements) + ", the most that FFTW takes");
}

}  // namespace detail

/// One pass of a mixer, forward or backward, which are the same map.
template <class T>
class MixerPass {
 public:
  /// Takes all memory, and makes plans.
  /// \param x, out of this rank's rows, checked
  /// \param executor that of `run`
  /// \throws std::bad_alloc, what FftPlan does, and std::runtime_error if MPI fails
  MixerPass(const MixerOptions& options, const View<const T>& x, const View<T>& out,
            const Rows& rows, const ExecutorRef& executor)
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
  MixerPass(const MixerPass&) = delete;
  MixerPass& operator=(const MixerPass&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return messages_.traffic() + sums_.traffic() + made_.traffic(); }

  /// Computes this rank's rows. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
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
  /// Multiply-adds that take as long as an element: half of what one process counts for both steps.
  static constexpr double kOfElement = 32;

  using Ranges = std::vector<std::vector<Range>>;

  /// [ranks] what some member of shares says.
  Ranges ranges_of(std::vector<Range> (detail::MixerShare::*of)() const) const {
    Ranges ranges;
    for (const detail::MixerShare& share : shares_) ranges.push_back((share.*of)());
    return ranges;
  }
  /// The messages that bring each rank the rows of its pairs.
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
  /// Elements of one worker's scratch.
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
    // The columns of a pair 0 that is left out would stand at both ends, and are not written.
    const View<T> out(columns.data() - 2 * first,
                      {columns.batch(), 1, columns.rows(), share().width_of_columns()},
                      {columns.rows() * row, columns.rows() * row, row, 1});
    const MixerColumns<T> mixer{*column_plan_, out};
    T* const sequences = sequences_.template data<T>();
    auto&& threads =
        for_work(executor, [&] { return kOfElement * static_cast<double>(columns.size()); });
    for (Index b = 0; b < columns.batch(); ++b) {
      for_each_task(threads, sizes_.row_tasks(),
                    [&](Index task, Index /*worker*/) { spread(b, task, sequences); });
      for_each_task(threads, pair_tasks(), [&](Index task, Index worker) {
        const Index begin = task * sizes_.kPairs;
        const Index count = (std::min)(sizes_.kPairs, share().count() - begin);
        mixer.mix(b, sequences + begin * sizes_.stride(), first + begin, count, scratch(worker));
      });
    }
  }

  /// Spreads the sums of a block of all pairs of rows over this rank's sequences.
  void spread(Index b, Index task, T* sequences) {
    const View<T> sums = sums_.slice();
    const Index first = task * sizes_.kRows;
    const Index count = (std::min)(sizes_.kRows, sizes_.own_rows() - first);
    MixerKernels<T>().spread_sums({&sums(b, 0, first, 0), sums.width(), first, count, sizes_.rows,
                                   share().width_of_sums(), share().count(), sequences,
                                   sizes_.stride()});
  }

  T* scratch(Index worker_number) { return scratch_.template data<T>() + worker_number * worker(); }

  View<const T> x_;
  View<T> out_;
  const Rows& rows_;
  MixerSizes<T> sizes_;
  std::vector<detail::MixerShare> shares_;  // [ranks]
  RowLayout pairs_;                         // who computes which pairs of rows
  RowTensors<T> whole_;                     // x
  Exchange messages_;
  Workspace own_sums_;     // [B, own pairs, D + 1]
  ChannelSlices<T> sums_;  // [B, 1, N / 2 + 1, 4 own pairs of columns]
  ChannelSlices<T> made_;  // [B, 1, N, own columns]
  Workspace sequences_;    // complex [own pairs of columns, N + 1]
  Workspace scratch_;
  std::shared_ptr<const FftPlan<T>> row_plan_;     // null if there is nothing to compute
  std::shared_ptr<const FftPlan<T>> column_plan_;  // likewise
};

/// Computes the mixer of a sequence that is spread over ranks, on all of them together; every rank
/// calls it with its own rows. The bits are those of `op.forward` over the whole sequence, unless
/// FFTW measures (FftPlanning).
/// \param x [B, 1, own rows, D], in ascending order   \param out [B, 1, own rows, D], written
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators
///
/// Cost: a transform of D numbers for each pair of rows that the rank computes (`layout_of_pairs`),
/// and its share of the transforms along the rows. What travels: one row of each pair that lies on
/// two ranks; the sums, about half as many as x has numbers, to the ranks of their columns; and the
/// result back. Memory: the rank's rows and those that it receives, their sums twice and their
/// result once; and of its columns the sums of all rows, which are half as many as the rows have
/// numbers, twice, the sequences of one batch entry, and the result twice.
template <class T, class E = Serial>
Traffic forward(const FourierMixer& op, const View<const std::type_identity_t<T>>& x,
                const View<T>& out, const Rows& rows, E&& executor = {}) {
  return detail::run_call(
      rows, op, detail::mixer_text<T>(".forward", "x", x, rows),
      [&] { detail::check_mixer<T>("x", x, rows, [&] { op.template check<T>(x, out); }); },
      executor,
      [&](auto& threads) {
        return std::make_unique<MixerPass<T>>(op.options, x, out, rows, threads);
      });
}

/// Computes the gradient of the mixer's x, for a sequence that is spread over ranks, on all of them
/// together. The bits are those of `op.backward` over the whole sequence, unless FFTW measures.
/// \param d_out [B, 1, own rows, D]   \param d_x [B, 1, own rows, D], written
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`
template <class T, class E = Serial>
Traffic backward(const FourierMixer& op, const View<const std::type_identity_t<T>>& d_out,
                 const View<T>& d_x, const Rows& rows, E&& executor = {}) {
  return detail::run_call(
      rows, op, detail::mixer_text<T>(".backward", "d_out", d_out, rows),
      [&] {
        detail::check_mixer<T>("d_out", d_out, rows,
                               [&] { op.template check_backward<T>(d_out, d_x); });
      },
      executor,
      [&](auto& threads) {
        return std::make_unique<MixerPass<T>>(op.options, d_out, d_x, rows, threads);
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
