// Sorts the occurrences of a table's features by row.

#pragma once

#include <math.h>
#include <string.h>

#include "rows.h"

namespace estimator_emb {
namespace {

int bits_of(uint64_t largest) { return largest == 0 ? 0 : 64 - __builtin_clzll(largest); }

constexpr int kMostBits = 11;  // The most bits that a pass of the sort looks at.

// The number of passes that sort keys by their high bits, and the number of bits in each pass.
struct Passes {
  int number, bits;

  Passes(int64_t keys, int64_t vocabulary) {
    const int all = bits_of(vocabulary - 1), most = keys < 1024 ? 8 : kMostBits;
    number = (all + most - 1) / most;
    bits = number ? (all + number - 1) / number : 0;
  }
};

// Does one pass: moves keys from `from` to `to` in the order of `bits` bits at `shift`. Equal keys
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

// Sorts keys by their high 32 bits and keeps the order of equal keys. The unsorted keys must be in
// `other` if the number of passes is odd, else in `keys`. The sorted keys are in `keys`.
void sort(const Passes& passes, uint64_t* keys, uint64_t* other, int64_t n) {
  for (int pass = 0; pass < passes.number; ++pass) {
    const bool last_to_keys = (passes.number - pass) % 2 == 1;
    sort_pass(last_to_keys ? other : keys, last_to_keys ? keys : other, n, 32 + pass * passes.bits,
              passes.bits);
  }
}

// Returns whether payloads are occurrences, each with its own gain.
bool indexed(const Feature& f) { return f.weights != nullptr && !f.limit; }

// Returns whether payloads are segments, each with a gain.
bool normalised(const Feature& f) {
  const bool at_most_one = f.form == kOne || (f.form == kDense && f.width == 1);
  return !f.limit && f.combiner != kSum && !at_most_one && f.weights == nullptr;
}

int64_t gains_of(const Feature& f) { return indexed(f) ? f.count : normalised(f) ? f.batch : 0; }

// Collects the occurrences of a feature as keys.
template <typename Id>
struct Occurrences {
  const Feature& f;
  uint64_t vocabulary;
  uint32_t part, parts;  // Only the rows of this part are collected:
  uint64_t first, last;  // [first, last), or if `last` is 0, rows that a hash assigns to the part.
  uint64_t payload;      // The number of the feature's payload 0.
  float* gains;
  uint32_t* segments;
  const float* gradients;  // Of the segments, to be brought into the cache. May be null.
  int64_t dimension;

  static bool mine(uint32_t id, uint32_t part, uint32_t parts) {
    return ((static_cast<uint64_t>(id * 2654435761u) * parts) >> 32) == part;
  }

  bool bad(int64_t id) const { return static_cast<uint64_t>(id) >= vocabulary; }

  // Writes a key, and advances if the key belongs to this part.
  template <bool kAll>
  void put(uint64_t*& to, int64_t id, int64_t own_payload) const {
    *to = static_cast<uint64_t>(id) << 32 | (payload + own_payload);
    to += kAll || (last ? static_cast<uint64_t>(id) - first < last - first : mine(id, part, parts));
  }

  // Brings the gradient of a segment into the cache. In the order of segments, this is several
  // times faster than later, in the order of the table's rows.
  template <bool kAll>
  void fetch(int64_t segment) const {
    if (kAll && gradients) prefetch(gradients + segment * dimension, dimension);
  }

  // Appends the keys of this part at `keys`. Fills `gains` (with counts or weights) and `segments`.
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
    if (f.width == 1 && !f.limit) {  // As `one`, but samples may have no id.
      for (int64_t b = 0; b < f.batch; ++b) {
        if (__builtin_expect(bad(ids[b]), 0)) {
          if (ids[b] == -1) continue;
          return kBadId;
        }
        fetch<kAll>(b);
        put<kAll>(to, ids[b], b);
      }
      keys = to;
      return kGood;
    }
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

// Turns counts or weights into gains. `norms` is scratch memory, [batch].
void finish_gains(const Feature& f, float* gains, const uint32_t* segments, float* norms) {
  if (f.weights == nullptr) {
    for (int64_t b = 0; b < f.batch; ++b) {
      gains[b] = quotient(1.0f, f.combiner == kMean ? gains[b] : sqrtf(gains[b]));
    }
    return;
  }
  if (f.combiner == kSum) return;
  memset(norms, 0, sizeof(float) * f.batch);
  const bool mean = f.combiner == kMean;
  for (int64_t j = 0; j < f.count; ++j) {
    norms[segments[j]] += mean ? gains[j] : gains[j] * gains[j];
  }
  for (int64_t j = 0; j < f.count; ++j) {
    const float norm = norms[segments[j]];
    gains[j] = quotient(gains[j], mean ? norm : sqrtf(norm));
  }
}

// Allocates pieces of scratch memory. Pieces with the largest alignment must be taken first.
struct Scratch {
  char* at;

  template <typename T>
  T* take(int64_t number) {
    T* const taken = reinterpret_cast<T*>(at);
    at += sizeof(T) * number;
    return taken;
  }
};

// Sizes of a table's occurrences.
struct Extent {
  int64_t occurrences = 0, batch = 0;
  int payload_bits;
  bool fits;  // Whether occurrences fit into keys.

  Extent(const Feature* features, int count) {
    int64_t most = 0;
    for (int i = 0; i < count; ++i) {
      const Feature& f = features[i];
      const int64_t payloads = indexed(f) ? f.count : f.segments();
      occurrences += f.count;
      if (payloads > most) most = payloads;
      if (f.batch > batch) batch = f.batch;
    }
    payload_bits = bits_of(most);
    fits =
        payload_bits <= 31 && payload_bits + bits_of(count - 1) <= 32 && occurrences <= INT32_MAX;
  }
};

// A table's occurrences sorted by row, with their gains, in memory of `bytes` bytes.
struct Order {
  int64_t* number;  // Of keys.
  uint64_t* keys;   // With an extra key, because `put` writes a key ahead.
  Scratch payloads;

  Order(void* memory, int64_t occurrences) : payloads{static_cast<char*>(memory)} {
    number = payloads.take<int64_t>(1);
    keys = payloads.take<uint64_t>(occurrences + 1);
  }

  // Return the memory of a feature's gains or segments. Call both for each feature in order. Gains
  // are null if all are 1. Segments are null if payloads are segments.
  float* take_gains(const Feature& f) {
    return gains_of(f) ? payloads.take<float>(gains_of(f)) : nullptr;
  }
  uint32_t* take_segments(const Feature& f) {
    return indexed(f) ? payloads.take<uint32_t>(f.count) : nullptr;
  }

  // Sets the gains and segments of `sources` to the written gains and segments.
  void read(const Feature* features, int count, Source* sources) const {
    Order unread = *this;
    for (int i = 0; i < count; ++i) {
      sources[i].gains = unread.take_gains(features[i]);
      sources[i].segments = unread.take_segments(features[i]);
    }
  }

  // Returns the first key of part `part` of `parts`. No row is in two parts.
  int64_t part_begins(int part, int parts) const {
    int64_t at = *number * part / parts;
    while (at > 0 && at < *number && keys[at] >> 32 == keys[at - 1] >> 32) ++at;
    return at;
  }

  static int64_t bytes(const Feature* features, int count) {
    int64_t total = 0, bytes = 0;
    for (int i = 0; i < count; ++i) {
      total += features[i].count;
      bytes += sizeof(float) * gains_of(features[i]) +
               (indexed(features[i]) ? sizeof(uint32_t) * features[i].count : 0);
    }
    return sizeof(int64_t) + sizeof(uint64_t) * (total + 1) + (bytes + 7) / 8 * 8;
  }
};

// Writes the order of the occurrences in part `part` of `parts`. Sets the gains and segments of
// `sources`. `gradients` may be null. Takes scratch memory: keys [occurrences + 1], floats [batch].
Result write_order(const Feature* features, int count, const Extent& extent,
                   const float* const* gradients, const Rows& rows, int64_t vocabulary, int part,
                   int parts, Scratch& scratch, Order order, Source* sources) {
  const Passes passes(extent.occurrences / parts, vocabulary);
  uint64_t* const other = scratch.take<uint64_t>(extent.occurrences + 1);
  float* const norms = scratch.take<float>(extent.batch);
  uint64_t* const keys = passes.number % 2 ? other : order.keys;
  uint64_t* end = keys;
  for (int i = 0; i < count; ++i) {
    const Feature& f = features[i];
    float* const gains = order.take_gains(f);
    uint32_t* const segments = order.take_segments(f);
    const auto collect = [&](auto id) {
      return Occurrences<decltype(id)>{f,
                                       static_cast<uint64_t>(vocabulary),
                                       static_cast<uint32_t>(part),
                                       static_cast<uint32_t>(parts),
                                       static_cast<uint64_t>(rows.first),
                                       static_cast<uint64_t>(rows.last),
                                       static_cast<uint64_t>(i) << extent.payload_bits,
                                       gains,
                                       segments,
                                       gradients ? gradients[i] : nullptr,
                                       rows.dimension}
          .collect_all(end);
    };
    const Result result = f.wide ? collect(int64_t{}) : collect(int32_t{});
    if (result != kGood) return result;
    if (gains != nullptr) finish_gains(f, gains, segments, norms);
    sources[i].gains = gains;
    sources[i].segments = segments;
  }
  *order.number = end - keys;
  sort(passes, order.keys, other, *order.number);
  return kGood;
}

}  // namespace
}  // namespace estimator_emb
