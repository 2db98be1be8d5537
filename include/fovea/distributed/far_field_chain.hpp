// SPDX-License-Identifier: MIT
/// \file
/// A causal far field over ranks: the ranges of rows are a chain, along which states go on.
#pragma once

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "fovea/attention/linear/stream.hpp"
#include "fovea/core/executor.hpp"
#include "fovea/distributed/mpi_type.hpp"
#include "fovea/distributed/rows.hpp"
#include "fovea/distributed/traffic.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

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

}  // namespace detail

/// The causal far field of one forward pass. Each range of rows adds its tokens to the states that
/// come from before, and sends them on, some key heads after the other, so that ranks work on
/// different heads at once.
template <class T, class Field>
class FarFieldChain {
 public:
  /// Takes all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class E>
  FarFieldChain(const LinearFamilyInputs<T>& inputs, const Field& far, const FarWeights<T>& weights,
                bool has_near, const View<T>& out, const Rows& rows, E&& executor)
      : inputs_(inputs),
        rows_(rows),
        shape_(shape_of(inputs)),
        sizes_(far.linear_shape(shape_)),
        stream_(inputs, fovea::detail::group_size(shape_.query_heads, shape_.key_heads), far,
                weights, has_near, out),
        links_(detail::links_of(rows.layout(), rows.ranks().rank())),
        workers_((std::max)(worker_count(executor, heads()), Index{1})),
        scratch_(memory_of(executor).take(workers_, slot() * Index{sizeof(T)})),
        states_(heads(), state_bytes()),
        row_args_(static_cast<std::size_t>(workers_ * stream_.group())),
        state_type_(detail::MpiType::row(rows.ranks(), state_bytes())) {}
  FarFieldChain(const FarFieldChain&) = delete;
  FarFieldChain& operator=(const FarFieldChain&) = delete;

  /// The messages of this rank.
  Traffic traffic() const {
    Traffic all = {0, waited_};
    for (const detail::LinkOfRows& link : links_) {
      if (goes_on(link)) all.bytes_sent += heads() * state_bytes();
    }
    return all;
  }

  /// Computes the far field of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(E&& executor) {
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

 private:
  using Stream = CausalStream<T, Field>;

  static constexpr int kTag = 2;

  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  Index state_elements() const {
    return Stream::state_elements(sizes_) + Stream::delta_elements(sizes_);
  }
  Index state_bytes() const { return state_elements() * Index{sizeof(T)}; }
  /// Elements of scratch of a worker.
  Index slot() const { return Stream::scratch_elements(sizes_); }
  Index key_end(Index batch) const {
    return inputs_.key_lengths.empty() ? rows_.count()
                                       : inputs_.key_lengths[static_cast<std::size_t>(batch)];
  }

  typename Stream::Memory memory(Index head, Index worker) {
    return {state(head),
            state(head) + Stream::state_elements(sizes_),
            nullptr,
            0,
            scratch_.template data<T>() + worker * slot(),
            row_args_.data() + worker * stream_.group()};
  }

  bool comes_in(const detail::LinkOfRows& link) const {
    return link.before >= 0 && link.before != rows_.ranks().rank();
  }
  bool goes_on(const detail::LinkOfRows& link) const {
    return link.behind >= 0 && link.behind != rows_.ranks().rank();
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
      rows_.ranks().check(MPI_Recv(state(head), 1, state_type_.get(), from, kTag,
                                   rows_.ranks().mpi(), MPI_STATUS_IGNORE),
                          "MPI_Recv");
    });
  }
  void send(Index head, int to, MPI_Request& request) {
    const Communicator& ranks = rows_.ranks();
    ranks.check(MPI_Isend(state(head), 1, state_type_.get(), to, kTag, ranks.mpi(), &request),
                "MPI_Isend");
  }
  void wait(MPI_Request& request) {
    detail::add_waiting(
        waited_, [&] { rows_.ranks().check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait"); });
  }

  LinearFamilyInputs<T> inputs_;
  const Rows& rows_;
  AttentionShape shape_;
  LinearShape sizes_;
  Stream stream_;
  std::vector<detail::LinkOfRows> links_;
  Index workers_;
  Workspace scratch_;                    // [workers, slot]
  Workspace states_;                     // [heads, state]
  std::vector<LinearRows<T>> row_args_;  // [workers, group]
  detail::MpiType state_type_;
  double waited_ = 0;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
