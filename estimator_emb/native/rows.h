// SPDX-License-Identifier: Apache-2.0
// Sums of rows, and the loop over rows around an optimizer's rule. Each file that includes this has
// its own copy, for its own instruction set.

#ifndef ESTIMATOR_EMB_NATIVE_ROWS_H_
#define ESTIMATOR_EMB_NATIVE_ROWS_H_

#include "kernels.h"

namespace estimator_emb {
namespace {

// Eight floats at a time, in as many registers as the instruction set needs for them.
typedef float V __attribute__((vector_size(32), aligned(4), may_alias));

constexpr int64_t kAhead = 16;  // Rows fetched into the cache before their turn.

// out = sum of gain * row over rows. D: the dimension where known when compiled, a multiple of 8.
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
  void write(float*, float gain) const {  // `sum` is where it is written.
    for (int64_t i = 0; i < dimension; ++i) sum[i] *= gain;
  }
};

inline void prefetch(const float* row, int64_t dimension) {
  for (int64_t i = 0; i < dimension; i += 16) __builtin_prefetch(row + i);
}

// What a key stands for.
struct Occurrence {
  const Source& source;
  uint64_t payload;
  Occurrence(const Rows& r, uint32_t key)
      : source(r.sources[static_cast<uint32_t>(r.keys[key]) >> r.payload_bits]),
        payload(r.keys[key] & ((uint64_t{1} << r.payload_bits) - 1)) {}
  const float* gradient(int64_t dimension) const {
    const uint64_t segment = source.segments ? source.segments[payload] : payload;
    return source.gradients + segment * dimension;
  }
};

// Sums the gradients of each row and runs `Step` on it. D as in Sum.
template <int64_t D, typename Step>
void update_rows(const Rows& r, int slots) {
  const int64_t dimension = D ? D : r.dimension;
  float* const sum_of_row = r.scratch;
  for (int64_t i = 0; i < r.count; ++i) {
    if (i + kAhead < r.count) {
      const int64_t ahead = static_cast<int64_t>(r.rows[i + kAhead]) * dimension;
      for (int v = 0; v <= slots; ++v) prefetch(r.variables[v] + ahead, dimension);
      prefetch(Occurrence(r, r.offsets[i + kAhead]).gradient(dimension), dimension);
    }
    Sum<D> sum(sum_of_row, dimension);
    for (uint32_t k = r.offsets[i]; k < r.offsets[i + 1]; ++k) {
      const Occurrence one(r, k);
      if (one.source.gains) {
        sum.add(one.gradient(dimension), one.source.gains[one.payload]);
      } else {
        sum.add(one.gradient(dimension));
      }
    }
    sum.write(sum_of_row, 1.0f);
    Step::run(dimension, r.learning_rate, r.constants, sum_of_row, r.variables,
              static_cast<int64_t>(r.rows[i]) * dimension);
  }
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
