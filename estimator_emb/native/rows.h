// Sums rows, and loops over rows to run an optimizer's rule. Each file that includes this has its
// own copy, for its own instruction set.

#pragma once

#include "kernels.h"

namespace estimator_emb {
namespace {

// Eight floats at a time, in as many registers as the instruction set needs for them.
typedef float V __attribute__((vector_size(32), aligned(4), may_alias));

constexpr int64_t kAhead = 16;  // How many rows ahead a lookup fetches into the cache.

// Calls a function with a common dimension as a constant, to compile a special loop, or with 0.
template <int64_t D>
struct Width {
  static constexpr int64_t value = D;
};
template <typename Function>
inline auto with_width(int64_t dimension, Function function) {
  switch (dimension) {
    case 8: return function(Width<8>{});
    case 16: return function(Width<16>{});
    case 32: return function(Width<32>{});
    case 64: return function(Width<64>{});
    default: return function(Width<0>{});
  }
}

// out = sum of gain * row over rows. D is the dimension, a multiple of 8, or 0 if unknown.
template <int64_t D>
struct Sum {
  V sum[D / 8];
  Sum(float*, int64_t) {
    for (int64_t i = 0; i < D / 8; ++i) sum[i] = V{};
  }
  void add(const float* row) {
    for (int64_t i = 0; i < D / 8; ++i) sum[i] += reinterpret_cast<const V*>(row)[i];
  }
  void add(const float* row, float gain) {
    for (int64_t i = 0; i < D / 8; ++i) sum[i] += gain * reinterpret_cast<const V*>(row)[i];
  }
  void write(float* out, float gain) const {
    for (int64_t i = 0; i < D / 8; ++i) reinterpret_cast<V*>(out)[i] = gain * sum[i];
  }
};

template <>
struct Sum<0> {
  float* sum;
  int64_t dimension;
  Sum(float* out, int64_t dimension) : sum(out), dimension(dimension) {
    for (int64_t i = 0; i < dimension; ++i) sum[i] = 0;
  }
  void add(const float* row) {
    for (int64_t i = 0; i < dimension; ++i) sum[i] += row[i];
  }
  void add(const float* row, float gain) {
    for (int64_t i = 0; i < dimension; ++i) sum[i] += gain * row[i];
  }
  void write(float*, float gain) const {  // `sum` is the output itself.
    for (int64_t i = 0; i < dimension; ++i) sum[i] *= gain;
  }
};

// sum += gain * row. D is the same as in Sum.
template <int64_t D>
inline void add(float* sum, float gain, const float* row, int64_t dimension) {
  for (int64_t i = 0; i < D / 8; ++i) {
    reinterpret_cast<V*>(sum)[i] += gain * reinterpret_cast<const V*>(row)[i];
  }
  if (D) return;
  for (int64_t i = 0; i < dimension; ++i) sum[i] += gain * row[i];
}

inline float quotient(float x, float y) { return y == 0 ? 0.0f : x / y; }

inline void prefetch(const float* row, int64_t dimension) {
  for (int64_t i = 0; i < dimension; i += 16) __builtin_prefetch(row + i);
}

// The gradients that keys stand for. `kSingle` is Rows::single.
template <bool kSingle>
struct Gradients {
  const Source* const sources;
  const Source first;
  const int payload_bits;
  const int64_t dimension;

  const Source& source(uint32_t key) const {
    return kSingle ? first : sources[key >> payload_bits];
  }
  uint32_t payload(uint32_t key) const { return kSingle ? key : key & ((1u << payload_bits) - 1); }
  const float* of(uint32_t key) const {
    const Source& from = source(key);
    const uint64_t u = payload(key), segment = !kSingle && from.segments ? from.segments[u] : u;
    return from.gradients + segment * dimension;
  }
};

// Returns how many keys ahead an update fetches rows. Short or frequent rows take less time, so
// more keys are processed while memory answers once.
inline int64_t keys_ahead(int64_t dimension) {
  const int64_t ahead = 1024 / dimension;
  return ahead < kAhead ? kAhead : ahead > 4 * kAhead ? 4 * kAhead : ahead;
}

// Brings into the cache the rows `ahead` keys after key `k`, and the gradients of nearer keys.
template <bool kSingle>
inline __attribute__((always_inline)) void fetch_ahead(const Rows& r, int slots,
                                                       const Gradients<kSingle>& gradients,
                                                       const uint64_t* keys, int64_t k,
                                                       int64_t ahead, int64_t count,
                                                       int64_t dimension) {
  if (k + ahead < count) {
    const int64_t at = static_cast<int64_t>(keys[k + ahead] >> 32) * dimension;
    for (int v = 0; v <= slots; ++v) prefetch(r.variables[v] + at, dimension);
  }
  if (k + kAhead / 2 < count) prefetch(gradients.of(keys[k + kAhead / 2]), dimension);
}

// Runs `Step` for a dimension that the compiler does not know. It is not inlined: its copies would
// take a third of the time to build a rule.
template <typename Step>
__attribute__((noinline)) void run_any(int64_t n, float learning_rate, const float* constants,
                                       const float* gradient, float* const* variables, int64_t at) {
  Step::run(n, learning_rate, constants, gradient, variables, at);
}

// Sums the gradients of each row and runs `Step` on the row. D is the same as in Sum.
template <int64_t D, bool kSingle, typename Step>
void update_rows(const Rows& r, int slots) {
  const int64_t dimension = D ? D : r.dimension, count = r.count, ahead = keys_ahead(dimension);
  const uint64_t* const keys = r.keys;
  const Gradients<kSingle> gradients{r.sources, r.sources[0], r.payload_bits, dimension};
  for (int64_t k = 0; k < count;) {
    const uint64_t row = keys[k] >> 32;
    Sum<D> sum(r.scratch, dimension);
    do {
      fetch_ahead(r, slots, gradients, keys, k, ahead, count, dimension);
      const uint32_t key = keys[k];
      const Source& from = gradients.source(key);
      if (from.gains) {
        sum.add(gradients.of(key), from.gains[gradients.payload(key)]);
      } else {
        sum.add(gradients.of(key));
      }
    } while (++k < count && keys[k] >> 32 == row);
    if constexpr (D != 0) {
      float gradient[D];  // Of the row. It may stay in registers.
      sum.write(gradient, 1.0f);
      Step::run(D, r.learning_rate, r.constants, gradient, r.variables, row * D);
    } else {
      run_any<Step>(dimension, r.learning_rate, r.constants, r.scratch, r.variables,
                    row * dimension);
    }
  }
}

// Updates rows [first, last) of a table by gradients of zero.
template <typename Step>
void update_untouched(const Rows& r, int64_t first, int64_t last) {
  static const float zeros[1024] = {};
  const int64_t end = last * r.dimension;
  for (int64_t at = first * r.dimension; at < end; at += 1024) {
    const int64_t n = end - at < 1024 ? end - at : 1024;
    run_any<Step>(n, r.learning_rate, r.constants, zeros, r.variables, at);
  }
}

// Does the same as update_rows, for several `cores` or with `last`.
template <typename Step>
void update_more_rows(const Rows& r, int slots) {
  const Gradients<false> gradients{r.sources, r.sources[0], r.payload_bits, r.dimension};
  // Returns the turn of a row that an occurrence belongs to.
  const auto turn_of = [&](uint32_t key, uint32_t row) {
    if (r.cores == 1) return 0;
    const Source& from = gradients.source(key);
    const uint32_t u = gradients.payload(key), segment = from.segments ? from.segments[u] : u;
    const uint32_t core = segment / (from.positions * r.samples), last = r.cores - 1;
    const int own = core < last ? core : last, owner = row % r.cores;
    return own == owner ? 0 : own < owner ? own + 1 : own;
  };
  const int64_t ahead = keys_ahead(r.dimension);
  int64_t next = r.first;
  for (int64_t begin = 0, end; begin < r.count; begin = end) {
    const int64_t row = r.keys[begin] >> 32;
    if (r.last) update_untouched<Step>(r, next, row);
    next = row + 1;
    int turn = r.cores;
    for (end = begin; end < r.count && static_cast<int64_t>(r.keys[end] >> 32) == row; ++end) {
      fetch_ahead(r, slots, gradients, r.keys, end, ahead, r.count, r.dimension);
      const int of = turn_of(r.keys[end], row);
      if (of < turn) turn = of;
    }
    while (turn < r.cores) {
      int later = r.cores;  // The next turn that has an occurrence.
      Sum<0> sum(r.scratch, r.dimension);
      for (int64_t k = begin; k < end; ++k) {
        const uint32_t key = r.keys[k];
        const int of = turn_of(key, row);
        if (of > turn && of < later) later = of;
        if (of != turn) continue;
        const Source& from = gradients.source(key);
        sum.add(gradients.of(key), from.gains ? from.gains[gradients.payload(key)] : 1.0f);
      }
      run_any<Step>(r.dimension, r.learning_rate, r.constants, r.scratch, r.variables,
                    row * r.dimension);
      turn = later;
    }
  }
  if (r.last) update_untouched<Step>(r, next, r.last);
}

template <typename Step>
void update_rows(const Rows* r, int slots) {
  if (r->cores > 1 || r->last) return update_more_rows<Step>(*r, slots);
  with_width(r->dimension, [&](auto width) {
    constexpr int64_t D = decltype(width)::value;
    r->single ? update_rows<D, true, Step>(*r, slots) : update_rows<D, false, Step>(*r, slots);
  });
}

}  // namespace
}  // namespace estimator_emb
