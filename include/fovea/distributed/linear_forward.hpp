// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of linear, delta-rule and FMM attention over a sequence that is spread over
/// ranks. Rows stay where they are; what travels is states of a fixed size, and for a near field
/// the margins of the rows.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/fmm.hpp"
#include "fovea/attention/linear/operator.hpp"
#include "fovea/distributed/segment_totals.hpp"
#include "fovea/distributed/softmax_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// An operator with a far field.
template <class Op, class T>
concept FarFieldAttention = std::derived_from<Op, LinearOperator<Op>> && std::floating_point<T>;

namespace detail {

/// One range of rows, and the ranks of the ranges before and behind it.
struct LinkOfRows {
  Range rows;       ///< of the sequence
  Index first = 0;  ///< the place of its first row among the rank's rows
  int before = -1;  ///< the rank of the range before, -1: there is none
  int behind = -1;  ///< the rank of the range behind, -1: there is none
};

/// The ranges of a rank as links of the chain of all ranges.
inline std::vector<LinkOfRows> links_of(const RowLayout& layout, int rank) {
  std::vector<std::pair<Range, int>> all;
  for (int r = 0; r < layout.ranks(); ++r) {
    for (const Range& range : layout.of(r)) all.emplace_back(range, r);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.first.begin < b.first.begin; });
  std::vector<LinkOfRows> links;
  Index first = 0;
  for (std::size_t n = 0; n < all.size(); ++n) {
    if (all[n].second != rank) continue;
    links.push_back({all[n].first, first, n == 0 ? -1 : all[n - 1].second,
                     n + 1 == all.size() ? -1 : all[n + 1].second});
    first += all[n].first.end - all[n].first.begin;
  }
  return links;
}

/// Copies a tensor to another one of the same shape.
template <class T>
void copy_elements(const View<T>& from, const View<T>& to) {
  for (Index b = 0; b < from.batch(); ++b) {
    for (Index h = 0; h < from.heads(); ++h) {
      for (Index n = 0; n < from.rows(); ++n) {
        for (Index c = 0; c < from.width(); ++c) to(b, h, n, c) = from(b, h, n, c);
      }
    }
  }
}

}  // namespace detail

/// The far field of one forward pass. If causal, the ranks are a chain: each adds its tokens to the
/// states that come from before, and sends them on, some key heads after the other, so that ranks
/// work on different heads at once. If not, the sums of segments are folded on all ranks.
template <class T, class Field>
class FarFieldPass {
 public:
  /// Takes all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class E>
  FarFieldPass(const LinearFamilyInputs<T>& inputs, const Field& far, const FarWeights<T>& weights,
               bool has_near, const View<T>& out, const Rows& rows, E&& executor)
      : inputs_(inputs),
        far_(far),
        rows_(rows),
        out_(out),
        shape_(shape_of(inputs)),
        sizes_(far.linear_shape(shape_)),
        owners_(rows.layout()),
        stream_(inputs, fovea::detail::group_size(shape_.query_heads, shape_.key_heads), far,
                weights, has_near, out) {
    const Index tasks = (std::max)(
        {heads(), owners_.count() * heads(), shape_.batch * shape_.query_heads * read_blocks()});
    workers_ = (std::max)(worker_count(executor, tasks), Index{1});
    slot_ = kernel_elements();
    scratch_ = memory_of(executor).take(workers_, slot_ * Index{sizeof(T)});
    row_args_.resize(static_cast<std::size_t>(workers_ * stream_.group()));
    if (far.causal) {
      states_ = Workspace(heads(), state_elements() * Index{sizeof(T)});
      links_ = detail::links_of(rows.layout(), rows.ranks().rank());
      if (state_elements() > 0) {
        state_type_.emplace(
            detail::MpiType::row(rows.ranks(), state_elements() * Index{sizeof(T)}));
      }
    } else {
      take_sums();
    }
  }
  FarFieldPass(const FarFieldPass&) = delete;
  FarFieldPass& operator=(const FarFieldPass&) = delete;

  /// Computes the far field of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(E&& executor) {
    return far_.causal ? run_chain(executor) : run_totals(executor);
  }

  /// The messages of this rank.
  Traffic traffic() const {
    if (!far_.causal) return exchange_->traffic() + totals_->traffic();
    Traffic all = {0, waited_};
    for (const detail::LinkOfRows& link : links_) {
      if (goes_on(link)) all.bytes_sent += heads() * state_elements() * Index{sizeof(T)};
    }
    return all;
  }

 private:
  using Stream = CausalStream<T, Field>;

  /// Rows that read a total together.
  static constexpr Index kReadRows = 256;
  static constexpr int kTag = 2;

  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  Index read_blocks() const { return (shape_.queries + kReadRows - 1) / kReadRows; }
  Index state_elements() const {
    return Stream::state_elements(sizes_) + Stream::delta_elements(sizes_);
  }
  Index kernel_elements() const {
    return padded_row<T>(
        (std::max)({Stream::scratch_elements(sizes_), linear_sum_scratch<T>(sizes_),
                    linear_read_scratch<T>(sizes_)}));
  }
  Index key_end(Index batch) const {
    return inputs_.key_lengths.empty() ? rows_.count()
                                       : inputs_.key_lengths[static_cast<std::size_t>(batch)];
  }
  Index used_segments(Index batch) const {
    return (key_end(batch) + kLinearSegment - 1) / kLinearSegment;
  }

  typename Stream::Memory memory(Index head, Index worker) {
    T* const state = states_.template data<T>() + head * state_elements();
    return {state,
            state + Stream::state_elements(sizes_),
            nullptr,
            0,
            scratch_.template data<T>() + worker * slot_,
            row_args_.data() + worker * stream_.group()};
  }

  bool comes_in(const detail::LinkOfRows& link) const {
    return link.before >= 0 && link.before != rows_.ranks().rank();
  }
  bool goes_on(const detail::LinkOfRows& link) const {
    return link.behind >= 0 && link.behind != rows_.ranks().rank();
  }

  template <class E>
  std::exception_ptr run_chain(E&& executor) {
    std::exception_ptr error;
    std::vector<MPI_Request> sends(static_cast<std::size_t>(heads()), MPI_REQUEST_NULL);
    for (const detail::LinkOfRows& link : links_) {
      for (Index first = 0; first < heads(); first += workers_) {
        const Index end = (std::min)(first + workers_, heads());
        for (Index head = first; head < end; ++head) {
          // What was sent of the range before must have gone before it is overwritten.
          wait(sends[static_cast<std::size_t>(head)]);
          if (comes_in(link)) receive(head, link.before);
        }
        if (!error) error = fovea::detail::caught([&] { add(link, first, end, executor); });
        for (Index head = first; head < end && goes_on(link); ++head) {
          send(head, link.behind, sends[static_cast<std::size_t>(head)]);
        }
      }
    }
    for (MPI_Request& request : sends) wait(request);
    return error;
  }

  /// Adds the tokens of a range to the states of some heads, whose rows read them.
  template <class E>
  void add(const detail::LinkOfRows& link, Index first, Index end, E&& executor) {
    for_each_task(executor, end - first, [&](Index task, Index worker) {
      const Index head = first + task;
      const Index b = head / shape_.key_heads;
      const Index before = (std::min)(link.rows.begin, key_end(b));
      const Index behind = (std::min)(link.rows.end, key_end(b));
      stream_.add(b, head % shape_.key_heads,
                  {link.first, link.rows.end - link.rows.begin, link.first, behind - before, before,
                   link.rows.begin},
                  memory(head, worker));
    });
  }

  T* state(Index head) { return states_.template data<T>() + head * state_elements(); }
  void receive(Index head, int from) {
    detail::add_waiting(waited_, [&] {
      rows_.ranks().check(MPI_Recv(state(head), 1, state_type_->get(), from, kTag,
                                   rows_.ranks().mpi(), MPI_STATUS_IGNORE),
                          "MPI_Recv");
    });
  }
  void send(Index head, int to, MPI_Request& request) {
    const Communicator& ranks = rows_.ranks();
    ranks.check(MPI_Isend(state(head), 1, state_type_->get(), to, kTag, ranks.mpi(), &request),
                "MPI_Isend");
  }
  void wait(MPI_Request& request) {
    detail::add_waiting(
        waited_, [&] { rows_.ranks().check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait"); });
  }

  /// Takes the memory of a pass that is not causal.
  void take_sums() {
    const Index elements = (linear_sum_elements<T>(sizes_) + SegmentTotals<T>::kUnit - 1) /
                           SegmentTotals<T>::kUnit * SegmentTotals<T>::kUnit;
    totals_.emplace(rows_.ranks(), owners_, heads(), elements);
    const RowLayout& layout = rows_.layout();
    const int rank = rows_.ranks().rank();
    keys_ =
        RowTensors<T>(shape_.batch, rows_.count(),
                      {{shape_.key_heads, shape_.width}, {shape_.key_heads, shape_.value_width}});
    exchange_.emplace(rows_.ranks(), keys_,
                      std::vector<ExchangePlan>{ExchangePlan::of(layout, rank, [&](int other) {
                        return owners_.broken_rows(layout, other);
                      })});
    RowSet broken(rows_.count());
    for (int other = 0; other < layout.ranks(); ++other) {
      for (const Range& range : owners_.broken_rows(layout, other)) broken.add(range);
    }
    broken_ = broken.ranges();
    for (const OwnRange& own : own_ranges(rows_)) {
      for (const Range& range : intersection(broken_, {own.range()})) {
        keys_.put(0, only_rows(own.of(inputs_.k), range), {range});
        keys_.put(1, only_rows(own.of(inputs_.v), range), {range});
      }
    }
  }

  /// Some rows of a tensor.
  static View<const T> only_rows(const View<const T>& x, const Range& rows) {
    if (x.is_none()) return x;
    Shape shape = x.shape();
    shape[2] = rows.end - rows.begin;
    return View<const T>(x.data() + rows.begin * x.strides()[2], shape, x.strides());
  }

  template <class E>
  std::exception_ptr run_totals(E&& executor) {
    std::exception_ptr error;
    exchange_->begin();
    exchange_->begin_stage(0);
    if constexpr (Field::kHasSums) {
      error = fovea::detail::caught([&] { sum_segments(executor); });
    }
    exchange_->end();
    totals_->fold([&](Index head) { return used_segments(head / shape_.key_heads); });
    if constexpr (Field::kHasSums) {
      if (!error) error = fovea::detail::caught([&] { read_rows(executor); });
    }
    return error;
  }

  template <class E>
  void sum_segments(E&& executor) {
    const std::vector<Index>& own = owners_.of(rows_.ranks().rank());
    const Index count = totals_->own_segments();
    LinearFamilyInputs<T> received = inputs_;
    received.k = keys_.tensor(0);
    received.v = keys_.tensor(1);
    for_each_task(executor, heads() * count, [&](Index task, Index worker) {
      const Index head = task / count;
      const Index b = head / shape_.key_heads;
      const Index segment = own[static_cast<std::size_t>(task % count)];
      if (segment >= used_segments(b)) return;
      // A segment that this rank holds is read where it is.
      const Range rows = owners_.rows(segment);
      const bool is_broken = !intersection(broken_, {rows}).empty();
      const Index moved = is_broken ? 0 : place_of(rows.begin) - rows.begin;
      const Sequence s = {b, b, 0, rows_.count(), moved, rows_.count(), key_end(b)};
      LinearKernels<T>{}.sum(segment_sum_args(
          is_broken ? received : inputs_, far_, s, {b, head % shape_.key_heads, segment},
          totals_->sums(head, task % count), scratch_.template data<T>() + worker * slot_));
    });
  }

  /// The place of a row among those of this rank, which holds it.
  Index place_of(Index row) const {
    Index place = 0;
    for (const Range& range : rows_.own()) {
      if (row < range.end) return place + row - range.begin;
      place += range.end - range.begin;
    }
    return place;
  }

  template <class E>
  void read_rows(E&& executor) {
    for_each_task(executor, shape_.batch * shape_.query_heads * read_blocks(),
                  [&](Index task, Index worker) {
                    const Index head = task / read_blocks() % shape_.query_heads;
                    const Index b = task / read_blocks() / shape_.query_heads;
                    read_block(b, head, task % read_blocks() * kReadRows, worker);
                  });
  }

  void read_block(Index b, Index head, Index first, Index worker) {
    const Index count = (std::min)(kReadRows, shape_.queries - first);
    if (key_end(b) == 0) {
      for (Index n = first; n < first + count; ++n) {
        for (Index c = 0; c < shape_.value_width; ++c) out_(b, head, n, c) = 0;
      }
      return;
    }
    const Index key_head = head / stream_.group();
    typename Stream::Memory at;
    at.kernel = scratch_.template data<T>() + worker * slot_;
    LinearReadArgs<T> args;
    args.rows = stream_.term_rows(b, key_head, head % stream_.group(), first, true, true, at);
    args.row_count = count;
    args.width = far_.features(shape_.width);
    args.value_width = shape_.value_width;
    args.maps = far_.linear_maps(shape_.width);
    args.total = totals_->total(b * shape_.key_heads + key_head);
    args.scratch = at.kernel;
    LinearKernels<T>{}.read(args);
  }

  LinearFamilyInputs<T> inputs_;
  Field far_;
  const Rows& rows_;
  View<T> out_;
  AttentionShape shape_;
  LinearShape sizes_;
  SegmentOwners owners_;
  Stream stream_;
  Index workers_ = 1;
  Index slot_ = 0;                         // elements of scratch of a worker
  Workspace scratch_;                      // [workers]
  std::vector<LinearRows<T>> row_args_;    // [workers, group]
  std::vector<detail::LinkOfRows> links_;  // if causal
  Workspace states_;                       // [heads], if causal
  std::optional<detail::MpiType> state_type_;
  double waited_ = 0;
  RowTensors<T> keys_;         // if not causal, like what follows
  std::vector<Range> broken_;  // rows of segments that no rank holds all
  std::optional<Exchange> exchange_;
  std::optional<SegmentTotals<T>> totals_;
};

/// Computes linear, delta-rule or FMM attention over a sequence that is spread over ranks, on all
/// of them together; every rank calls it with its own rows. The bits are those of `op.forward` over
/// the whole sequence, for any number of ranks and any layout. \param op LinearAttention,
/// DeltaRuleAttention or FmmAttention \param inputs q, k, v (and beta) of this rank's rows, [B, H,
/// own rows, D] in ascending order; key lengths count keys of the whole sequence \param out [B, Hq,
/// own rows, Dv], written \param saved what `op` saves, of the rank's rows \param executor as in
/// `forward` of the operator \returns the messages of this rank \throws as `forward` over
/// softmax operators Cost: that of the rank's rows. If causal, a state for each key head is sent at
/// each end of a range of rows, and ranks wait for each other unless there are at least as many key
/// heads. If not, the sums of the rank's segments of kLinearSegment tokens are sent, and totals
/// received. A near field costs the rows of its margins. Memory: states; if not causal or with a
/// near field, the rank's keys and values once more.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const SavedOf<Op, T>& saved,
                                                  const Rows& rows, E&& executor = {}) {
  const View<T> to(out);
  detail::together(rows.ranks(), detail::call_text(Op::name(), ".forward", inputs, rows), [&] {
    detail::check_call(Op::name(), inputs, rows,
                       [&](const InputsOf<Op, T>& own) { op.check(own, to, saved); });
  });
  auto&& threads = for_call(executor);
  const auto family = fovea::detail::inputs_as<LinearFamilyInputs<T>>(inputs);
  const auto far = op.template far<T>();
  using Field = std::remove_const_t<decltype(far)>;
  FarWeights<T> weights;
  std::unique_ptr<FarFieldPass<T, Field>> pass;
  std::unique_ptr<SoftmaxForwardPass<LocalAttention, T>> near;
  LocalAttention near_op;
  detail::together(rows.ranks(), Op::name(), [&] {
    if constexpr (Op::kHasNear) {
      weights = op.blend(family).weights();
      near_op = op.near();
      near = std::make_unique<SoftmaxForwardPass<LocalAttention, T>>(
          near_op, NearBlocks<T>::only_rows(family), to, SoftmaxSaved<T>{saved.near_lse}, rows);
      near->reserve(threads);
    } else {
      weights = op.template far_weights<T>(family.q.heads(), family.v.width());
    }
    pass = std::make_unique<FarFieldPass<T, Field>>(family, far, weights, Op::kHasNear, to, rows,
                                                    threads);
    memory_of(threads).require();
  });
  std::exception_ptr error;
  if constexpr (Op::kHasNear) {
    error = near->run(threads);
    if (!error && !saved.near_out.is_none()) detail::copy_elements(to, saved.near_out);
  }
  const std::exception_ptr later = pass->run(threads);
  detail::agree(rows.ranks(), error ? error : later, Op::name());
  if constexpr (Op::kHasNear) return near->traffic() + pass->traffic();
  return pass->traffic();
}

/// The same, where nothing is saved.
template <class Op, class Out, class E = Serial, class T = Scalar<Out>>
requires FarFieldAttention<Op, T> Traffic forward(const Op& op, const InputsOf<Op, T>& inputs,
                                                  Out&& out, const Rows& rows, E&& executor = {}) {
  return forward<Op>(op, inputs, View<T>(out), SavedOf<Op, T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
