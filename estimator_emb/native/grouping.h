// SPDX-License-Identifier: Apache-2.0
// Sorts the occurrences of a table's features by row.

#ifndef ESTIMATOR_EMB_NATIVE_GROUPING_H_
#define ESTIMATOR_EMB_NATIVE_GROUPING_H_

#include <string.h>

#include "rows.h"

namespace estimator_emb {
namespace {

int bits_of(uint64_t largest) { return largest == 0 ? 0 : 64 - __builtin_clzll(largest); }

constexpr int kMostBits = 11;  // Most bits that one pass of the sort looks at.

// Does one pass: moves keys from `from` to `to` in the order of `bits` bits at `shift`; equal keys
// keep their order.
void sort_pass(const uint64_t* from, uint64_t* to, int64_t n, int shift, int bits) {
  uint32_t starts[1 << kMostBits];
  const uint32_t mask = (1u << bits) - 1;
  memset(starts, 0, sizeof(uint32_t) << bits);
  for (int64_t k = 0; k < n; ++k) ++starts[(from[k] >> shift) & mask];
  uint32_t sum = 0;
  for (uint32_t d = 0; d <= mask; ++d) {
    const uint32_t count = starts[d];
    starts[d] = sum;
    sum += count;
  }
  for (int64_t k = 0; k < n; ++k) to[starts[(from[k] >> shift) & mask]++] = from[k];
}

// Sorts keys by their high 32 bits, all below 2^bits, and keeps the order of equal keys. Returns
// the array that holds them then: `keys` or `other`.
uint64_t* sort(uint64_t* keys, uint64_t* other, int64_t n, int bits) {
  const int most = n < 1024 ? 8 : kMostBits;
  const int passes = (bits + most - 1) / most;
  for (int pass = 0; pass < passes; ++pass) {
    const int digit = (bits + passes - 1) / passes;
    sort_pass(keys, other, n, 32 + pass * digit, digit);
    uint64_t* const sorted = other;
    other = keys;
    keys = sorted;
  }
  return keys;
}

// Returns whether payloads are occurrences, each with a gain of its own.
bool indexed(const Feature& f) { return f.weights != nullptr && !f.limit; }

// Returns whether payloads are segments, each with a gain.
bool normalised(const Feature& f) {
  return !f.limit && f.combiner != kSum && f.form != kOne && f.weights == nullptr;
}

int64_t gains_of(const Feature& f) { return indexed(f) ? f.count : normalised(f) ? f.batch : 0; }

// Where the keys of one feature's occurrences go.
struct Collection {
  uint64_t vocabulary;
  uint32_t part, parts;  // Only the rows of this part are collected:
  uint64_t first, last;  // [first, last), or if `last` is 0, those that a hash gives to the part.
  uint64_t payload;      // The number of the feature's payload 0.
  float* gains;
  uint32_t* segments;
  const float* gradients;  // Gradients of the segments, to be brought into the cache.
  int64_t dimension;
};

// A collector of the occurrences of one feature as keys.
template <typename Id>
struct Occurrences : Collection {
  const Feature& f;

  static bool mine(uint32_t id, uint32_t part, uint32_t parts) {
    return ((static_cast<uint64_t>(id * 2654435761u) * parts) >> 32) == part;
  }

  bool bad(int64_t id) const { return static_cast<uint64_t>(id) >= vocabulary; }

  // Writes a key, and moves on if it is of this part.
  template <bool kAll>
  void put(uint64_t*& to, int64_t id, int64_t own_payload) const {
    *to = static_cast<uint64_t>(id) << 32 | (payload + own_payload);
    to += kAll || (last ? static_cast<uint64_t>(id) - first < last - first
                        : mine(id, part, parts));
  }

  // Brings the gradient of a segment into the cache: now, in the order of segments, it is several
  // times faster than later in the order of the rows.
  template <bool kAll>
  void fetch(int64_t segment) const {
    if (kAll) prefetch(gradients + segment * dimension, dimension);
  }

  // Appends the keys of this part at `keys`; fills `gains` (with counts, or weights) and
  // `segments`.
  template <bool kAll>
  Result one(uint64_t*& keys) const {
    const Id* ids = static_cast<const Id*>(f.ids);
    uint64_t* to = keys;
    for (int64_t j = 0; j < f.count; ++j) {
      if (bad(ids[j])) return kBadId;
      if (f.weights != nullptr) segments[j] = j, gains[j] = f.weights[j];
      fetch<kAll>(j);
      put<kAll>(to, ids[j], j);
    }
    keys = to;
    return kGood;
  }

  template <bool kAll>
  Result dense(uint64_t*& keys) const {
    const Id* ids = static_cast<const Id*>(f.ids);
    uint64_t* to = keys;
    for (int64_t b = 0; b < f.batch; ++b) {
      int32_t found = 0;
      fetch<kAll>(f.limit ? b * f.limit : b);
      for (int64_t k = 0; k < f.width; ++k) {
        const int64_t id = *ids++;
        if (bad(id)) {
          if (id == -1) continue;
          return kBadId;
        }
        if (f.limit && k >= f.limit) continue;
        put<kAll>(to, id, f.limit ? b * f.limit + k : b);
        ++found;
      }
      if (normalised(f)) gains[b] = found;
    }
    keys = to;
    return kGood;
  }

  template <bool kAll>
  Result places(uint64_t*& keys) const {
    const Id* ids = static_cast<const Id*>(f.ids);
    const bool own_gains = indexed(f), counted = normalised(f), pairs = f.limit && f.stride == 2;
    const uint64_t most = f.segments();
    if (counted) memset(gains, 0, sizeof(float) * f.batch);
    uint64_t* to = keys;
    int64_t before = 0, found = 0;  // The segment of the latest occurrences, and their number.
    for (int64_t j = 0; j < f.count; ++j) {
      if (bad(ids[j])) return kBadId;
      int64_t s = f.places[j * f.stride];
      if (pairs) {
        const int64_t position = f.places[j * 2 + 1];
        if (position >= f.limit) continue;
        if (position < 0) return kBadPlace;
        s = s * f.limit + position;
      }
      if (static_cast<uint64_t>(s) >= most) return kBadPlace;
      if (own_gains) {
        segments[j] = s, gains[j] = f.weights[j];
      } else if (counted && s != before) {
        gains[before] += found;
        before = s;
        found = 0;
      }
      ++found;
      fetch<kAll>(s);
      put<kAll>(to, ids[j], own_gains ? j : s);
    }
    if (counted && found) gains[before] += found;
    keys = to;
    return kGood;
  }

  Result collect_all(uint64_t*& keys) const {
    const bool all = parts == 1;
    switch (f.form) {
      case kOne: return all ? one<true>(keys) : one<false>(keys);
      case kDense: return all ? dense<true>(keys) : dense<false>(keys);
      default: return all ? places<true>(keys) : places<false>(keys);
    }
  }
};

}  // namespace
}  // namespace estimator_emb

#endif  // ESTIMATOR_EMB_NATIVE_GROUPING_H_
