// SPDX-License-Identifier: Apache-2.0
// Sums rows, and loops over rows around an optimizer's rule. Each file that includes this has its
// own copy, for its own instruction set.

#ifndef ESTIMATOR_EMB_NATIVE_ROWS_H_
#define ESTIMATOR_EMB_NATIVE_ROWS_H_

#include "kernels.h"

namespace estimator_emb {
namespace {

// Eight floats at a time, in as many registers as the instruction set needs for them.
typedef float V __attribute__((vector_size(32), aligned(4), may_alias));

constexpr int64_t kAhead = 16;  // How many rows ahead are fetched into the cache.

// out = sum of gain * row over rows. D is the dimension, a multiple of 8, or 0 if it is not known.
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

inline void prefetch(const float* row, int64_t dimension) {
  for (int64_t i = 0; i < dimension; i += 16) __builtin_prefetch(row + i);
}

// The gradients that keys stand for. `kSingle` is as Rows::single.
template <bool kSingle>
struct Gradients {
  const Source* const sources;
  const Source first;
  const int payload_bits;
  const int64_t dimension;

  const Source& source(uint32_t key) const {
    return kSingle ? first : sources[key >> payload_bits];
  }
  uint32_t payload(uint32_t key) const {
    return kSingle ? key : key & ((1u << payload_bits) - 1);
  }
  const float* of(uint32_t key) const {
    const Source& from = source(key);
    const uint64_t u = payload(key), segment = !kSingle && from.segments ? from.segments[u] : u;
    return from.gradients + segment * dimension;
  }
};

// Sums the gradients of each row and runs `Step` on the row. D is as in Sum.
template <int64_t D, bool kSingle, typename Step>
void update_rows(const Rows& r, int slots) {
  const int64_t dimension = D ? D : r.dimension, count = r.count;
  const uint64_t* const keys = r.keys;
  const Gradients<kSingle> gradients{r.sources, r.sources[0], r.payload_bits, dimension};
  for (int64_t k = 0; k < count;) {
    const uint64_t row = keys[k] >> 32;
    Sum<D> sum(r.scratch, dimension);
    do {
      if (k + kAhead < count) {
        const int64_t ahead = static_cast<int64_t>(keys[k + kAhead] >> 32) * dimension;
        for (int v = 0; v <= slots; ++v) prefetch(r.variables[v] + ahead, dimension);
        prefetch(gradients.of(keys[k + kAhead / 2]), dimension);
      }
      const uint32_t key = keys[k];
      const Source& from = gradients.source(key);
      if (from.gains) {
        sum.add(gradients.of(key), from.gains[gradients.payload(key)]);
      } else {
        sum.add(gradients.of(key));
      }
    } while (++k < count && keys[k] >> 32 == row);
    sum.write(r.scratch, 1.0f);
    Step::run(dimension, r.learning_rate, r.constants, r.scratch, r.variables, row * dimension);
  }
}

template <int64_t D, typename Step>
void update_rows(const Rows& r, int slots) {
  return r.single ? update_rows<D, true, Step>(r, slots) : update_rows<D, false, Step>(r, slots);
}

// The common dimensions have loops of their own.
template <typename Step>
void update_rows(const Rows* r, int slots) {
  switch (r->dimension) {
    case 8: return update_rows<8, Step>(*r, slots);
    case 16: return update_rows<16, Step>(*r, slots);
    case 32: return update_rows<32, Step>(*r, slots);
    case 64: return update_rows<64, Step>(*r, slots);
    default: return update_rows<0, Step>(*r, slots);
  }
}

}  // namespace
}  // namespace estimator_emb

#endif  // ESTIMATOR_EMB_NATIVE_ROWS_H_
