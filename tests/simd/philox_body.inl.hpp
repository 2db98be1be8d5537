// SPDX-License-Identifier: MIT
/// \file
/// kernels/philox.inl.hpp over arrays: what philox_test.cpp compiles once per level.

/// words[lane, 4] of the counters c[4, kDrawLanes], whose upper halves are arbitrary.
inline void words(const std::int64_t* c, std::uint64_t seed, std::uint32_t* out) {
  for (int first = 0; first < kDrawLanes; first += kLanes<double>) {
    PhiloxWords counter;
    for (int w = 0; w < 4; ++w) counter.at[w] = load_int<double>(c + w * kDrawLanes + first);
    const PhiloxWords made = philox_lanes(counter, seed);
    for (int w = 0; w < 4; ++w) {
      alignas(kVecBytes) std::int64_t lanes[kLanes<double>];
      store_int<double>(lanes, made.at[w]);
      for (int lane = 0; lane < kLanes<double>; ++lane) {
        out[(first + lane) * 4 + w] = static_cast<std::uint32_t>(lanes[lane]);
      }
    }
  }
}

/// The numerators at (i[lane], j[lane]) of kDrawLanes lanes.
template <class T>
inline void numerators(std::uint64_t seed, std::uint32_t batch, std::uint32_t head, const Int<T>* i,
                       const Int<T>* j, Int<T>* out) {
  const DrawSource source{seed, batch, head};
  for (int lane = 0; lane < kDrawLanes; lane += kLanes<T>) {
    store_int<T>(out + lane,
                 draw_numerator<T>(source, load_int<T>(i + lane), load_int<T>(j + lane)));
  }
}

/// The same by RowDraws, which takes one i for all lanes.
template <class T>
inline void row_numerators(std::uint64_t seed, std::uint32_t batch, std::uint32_t head,
                           const Int<T>* i, const Int<T>* j, Int<T>* out) {
  constexpr int vectors = kDrawLanes >= 2 * kLanes<T> ? 2 : 1;
  const RowDraws draws({seed, batch, head}, static_cast<std::uint32_t>(*i));
  for (int lane = 0; lane < kDrawLanes; lane += vectors * kLanes<T>) {
    IntVec<T> at[vectors];
    for (int v = 0; v < vectors; ++v) at[v] = load_int<T>(j + lane + v * kLanes<T>);
    IntVec<T> made[vectors];
    draws.numerators<vectors, T>(at, made);
    for (int v = 0; v < vectors; ++v) store_int<T>(out + lane + v * kLanes<T>, made[v]);
  }
}

inline PhiloxOperations operations() {
  return {&words, &numerators<float>, &numerators<double>, &row_numerators<float>,
          &row_numerators<double>};
}
