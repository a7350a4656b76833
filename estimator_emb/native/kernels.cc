// SPDX-License-Identifier: Apache-2.0
// Lookup, and the grouping of gradients by row. Compiled once for each instruction set, which gives
// KERNELS its name.

#include <math.h>
#include <string.h>

#include "rows.h"

namespace estimator_emb {
namespace {

// The gain that all occurrences of a sample share, or the divisor of their weights.
inline float normaliser(Combiner combiner, float weights, float squares) {
  return combiner == kMean ? weights : combiner == kSqrtn ? sqrtf(squares) : 1.0f;
}

inline float quotient(float x, float y) { return y == 0 ? 0.0f : x / y; }

template <int64_t D>
inline void copy(float* out, const float* row, int64_t dimension) {
  memcpy(out, row, sizeof(float) * (D ? D : dimension));
}

inline void clear(float* out, int64_t rows, int64_t dimension) {
  if (rows > 0) memset(out, 0, sizeof(float) * rows * dimension);
}

template <typename Id, int64_t D>
struct Lookup {
  const Feature& f;
  const Id* ids;
  const float* table;
  uint64_t vocabulary;
  int64_t dimension;
  float* out;

  const float* row(int64_t j) const { return table + static_cast<int64_t>(ids[j]) * width(); }
  float* segment(int64_t s) const { return out + s * width(); }
  int64_t width() const { return D ? D : dimension; }
  bool bad(int64_t j) const {
    return static_cast<uint64_t>(static_cast<int64_t>(ids[j])) >= vocabulary;
  }
  // Reads beyond the checked ids, so it may be asked for any number.
  void fetch(int64_t j, int64_t end) const {
    if (j < end && !bad(j)) prefetch(row(j), width());
  }

  Result one(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end; ++j) {
      if (bad(j)) return kBadId;
      fetch(j + kAhead, end);
      if (f.weights == nullptr) {
        copy<D>(segment(j), row(j), dimension);
      } else {
        const float w = f.weights[j];
        const float gain =
            f.combiner == kSum ? w : quotient(w, normaliser(f.combiner, w, w * w));
        Sum<D> sum(segment(j), dimension);
        sum.add(row(j), gain);
        sum.write(segment(j), 1.0f);
      }
    }
    return kGood;
  }

  Result dense(int64_t first_sample, int64_t last_sample) const {
    const int64_t end = last_sample * f.width;
    for (int64_t b = first_sample; b < last_sample; ++b) {
      const int64_t begin = b * f.width;
      if (f.limit) {
        for (int64_t k = 0; k < f.limit; ++k) {
          float* to = segment(b * f.limit + k);
          if (k >= f.width || ids[begin + k] == -1) {
            clear(to, 1, width());
          } else {
            if (bad(begin + k)) return kBadId;
            fetch(begin + k + kAhead, end);
            copy<D>(to, row(begin + k), dimension);
          }
        }
        for (int64_t k = f.limit; k < f.width; ++k) {
          if (bad(begin + k) && ids[begin + k] != -1) return kBadId;
        }
        continue;
      }
      Sum<D> sum(segment(b), dimension);
      int64_t n = 0;
      for (int64_t j = begin; j < begin + f.width; ++j) {
        fetch(j + kAhead, end);
        if (ids[j] == -1) continue;
        if (bad(j)) return kBadId;
        sum.add(row(j));
        ++n;
      }
      sum.write(segment(b), quotient(1.0f, normaliser(f.combiner, n, n)));
    }
    return kGood;
  }

  int64_t sample(int64_t j) const { return f.places[j * f.stride]; }

  // kBadPlace as a negative number.
  int64_t segment_of(int64_t j) const {
    const int64_t b = sample(j);
    if (static_cast<uint64_t>(b) >= static_cast<uint64_t>(f.batch)) return -1;
    if (!f.limit || f.stride == 1) return b;
    const int64_t position = f.places[j * f.stride + 1];
    return position < 0 ? -1 : b * f.limit + position;
  }

  Result places(int64_t begin, int64_t end, int64_t first, int64_t last) const {
    int64_t next = first;  // The first segment not yet written.
    for (int64_t j = begin; j < end;) {
      if (f.limit && f.stride == 2 && f.places[j * 2 + 1] >= f.limit) {
        if (bad(j)) return kBadId;
        ++j;
        continue;
      }
      const int64_t s = f.limit && f.stride == 1 ? sample(j) : segment_of(j);
      if (s < 0 || s >= f.segments()) return kBadPlace;
      if (s < next || s >= last) return kUnsorted;
      clear(segment(next), s - next, width());
      next = s + 1;
      const bool alone = f.limit != 0;
      const int64_t run_begin = j, place = f.places[j * f.stride];
      float weights = 0, squares = 0;
      if (f.weights != nullptr && !alone) {
        for (int64_t k = j; k < end && sample(k) == place; ++k) {
          weights += f.weights[k];
          squares += f.weights[k] * f.weights[k];
        }
      }
      const float norm = normaliser(f.combiner, weights, squares);
      Sum<D> sum(segment(s), dimension);
      do {
        if (bad(j)) return kBadId;
        fetch(j + kAhead, end);
        if (f.weights != nullptr && !alone) {
          sum.add(row(j), quotient(f.weights[j], norm));
        } else {
          sum.add(row(j));
        }
        ++j;
      } while (j < end && sample(j) == place &&
               (!alone || f.stride == 1 || f.places[j * 2 + 1] == f.places[run_begin * 2 + 1]));
      const int64_t n = j - run_begin;
      sum.write(segment(s), f.weights != nullptr || alone
                                ? 1.0f
                                : quotient(1.0f, normaliser(f.combiner, n, n)));
    }
    clear(segment(next), last - next, width());
    return kGood;
  }

  Result unsorted(float* norms) const {
    const bool gains = !f.limit && f.combiner != kSum;
    if (gains) {
      memset(norms, 0, sizeof(float) * f.batch);
      for (int64_t j = 0; j < f.count; ++j) {
        const int64_t s = segment_of(j);
        if (s < 0) return kBadPlace;
        const float w = f.weights ? f.weights[j] : 1.0f;
        norms[s] += f.combiner == kMean ? w : w * w;
      }
      if (f.combiner == kSqrtn) {
        for (int64_t b = 0; b < f.batch; ++b) norms[b] = sqrtf(norms[b]);
      }
    }
    clear(out, f.segments(), width());
    for (int64_t j = 0; j < f.count; ++j) {
      if (bad(j)) return kBadId;
      if (f.limit && f.stride == 2 && f.places[j * 2 + 1] >= f.limit) continue;
      const int64_t s = f.limit && f.stride == 1 ? sample(j) : segment_of(j);
      if (s < 0 || s >= f.segments()) return kBadPlace;
      float gain = f.weights && !f.limit ? f.weights[j] : 1.0f;
      if (gains) gain = quotient(gain, norms[s]);
      const float* from = row(j);
      float* to = segment(s);
      for (int64_t i = 0; i < width(); ++i) to[i] += gain * from[i];
    }
    return kGood;
  }
};

template <typename Id, int64_t D>
Result lookup_as(const Feature& f, const float* table, int64_t vocabulary, int64_t dimension,
                 int64_t begin, int64_t end, int64_t first, int64_t last, float* norms,
                 float* out) {
  Lookup<Id, D> lookup{f,   static_cast<const Id*>(f.ids), table, static_cast<uint64_t>(vocabulary),
                       dimension, out};
  if (norms != nullptr) return lookup.unsorted(norms);
  if (f.form == kOne) return lookup.one(begin, end);
  const int64_t per_sample = f.limit ? f.limit : 1;
  if (f.form == kDense) return lookup.dense(first / per_sample, last / per_sample);
  return lookup.places(begin, end, first, last);
}

template <typename Id>
Result lookup_ids(const Feature& f, const float* table, int64_t vocabulary, int64_t dimension,
                  int64_t begin, int64_t end, int64_t first, int64_t last, float* norms,
                  float* out) {
#define ESTIMATOR_EMB_LOOKUP(D) \
  lookup_as<Id, D>(f, table, vocabulary, dimension, begin, end, first, last, norms, out)
  switch (dimension) {
    case 8: return ESTIMATOR_EMB_LOOKUP(8);
    case 16: return ESTIMATOR_EMB_LOOKUP(16);
    case 32: return ESTIMATOR_EMB_LOOKUP(32);
    case 64: return ESTIMATOR_EMB_LOOKUP(64);
    default: return ESTIMATOR_EMB_LOOKUP(0);
  }
#undef ESTIMATOR_EMB_LOOKUP
}

Result lookup(const Feature* f, const float* table, int64_t vocabulary, int64_t dimension,
              int64_t begin, int64_t end, int64_t first, int64_t last, float* out) {
  return (f->wide ? lookup_ids<int64_t> : lookup_ids<int32_t>)(
      *f, table, vocabulary, dimension, begin, end, first, last, nullptr, out);
}

Result lookup_unsorted(const Feature* f, const float* table, int64_t vocabulary,
                       int64_t dimension, float* norms, float* out) {
  return (f->wide ? lookup_ids<int64_t> : lookup_ids<int32_t>)(
      *f, table, vocabulary, dimension, 0, f->count, 0, f->segments(), norms, out);
}

template <typename Id>
bool in_range(const Id* ids, int64_t count, int64_t vocabulary, bool padded) {
  // A number outside sets the sign bit: of itself, or of its distance from the last id.
  const uint64_t lowest = padded, last = vocabulary - 1;
  uint64_t signs = 0;
  for (int64_t j = 0; j < count; ++j) {
    const uint64_t id = static_cast<int64_t>(ids[j]);
    signs |= (id + lowest) | (last - id);
  }
  return signs >> 63 == 0;
}

bool ids_in_range(const void* ids, bool wide, int64_t count, int64_t vocabulary, bool padded) {
  if (wide) return in_range(static_cast<const int64_t*>(ids), count, vocabulary, padded);
  return in_range(static_cast<const int32_t*>(ids), count, vocabulary, padded);
}

bool finite(const float* values, int64_t count) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i) good &= fabsf(values[i]) <= 3.40282347e38f;
  return good;
}

int bits_of(uint64_t largest) { return largest == 0 ? 0 : 64 - __builtin_clzll(largest); }

constexpr int kMostBits = 11;  // Of one pass of the sort.

// One pass: moves keys from `from` to `to` in the order of `bits` bits at `shift`; equal ones keep
// their order. `starts`: scratch, [2^bits + 1]; on return, where each bucket ends.
void sort_pass(const uint64_t* from, uint64_t* to, int64_t n, int shift, int bits,
               uint32_t* starts) {
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

// Sorts keys by their high 32 bits, all below 2^bits, and keeps the order of equal ones. Returns
// where they are: in `keys` or in `other`.
uint64_t* sort(uint64_t* keys, uint64_t* other, int64_t n, int bits) {
  uint32_t starts[1 << kMostBits];
  if (n >= 32768 && bits > kMostBits && bits <= 2 * kMostBits) {
    // Many keys: buckets by the high bits first, each of which then fits a near cache.
    const int high = bits - kMostBits;
    uint32_t ends[1 << kMostBits];
    sort_pass(keys, other, n, 32 + kMostBits, high, ends);
    uint32_t begin = 0;
    for (int d = 0; d < 1 << high; ++d) {
      sort_pass(other + begin, keys + begin, ends[d] - begin, 32, kMostBits, starts);
      begin = ends[d];
    }
    return keys;
  }
  const int most = n < 1024 ? 8 : kMostBits;
  const int passes = (bits + most - 1) / most;
  for (int pass = 0; pass < passes; ++pass) {
    const int digit = (bits + passes - 1) / passes;
    sort_pass(keys, other, n, 32 + pass * digit, digit, starts);
    uint64_t* const sorted = other;
    other = keys;
    keys = sorted;
  }
  return keys;
}

// Whether payloads are occurrences, each with a gain of its own.
bool indexed(const Feature& f) { return f.weights != nullptr && !f.limit; }

// Whether payloads are segments, each with a gain.
bool normalised(const Feature& f) {
  return !f.limit && f.combiner != kSum && f.form != kOne && f.weights == nullptr;
}

int64_t gains_of(const Feature& f) { return indexed(f) ? f.count : normalised(f) ? f.batch : 0; }

// The occurrences of one feature as keys.
template <typename Id>
struct Occurrences {
  const Feature& f;
  uint64_t vocabulary;
  uint32_t part, parts;
  uint64_t payload;  // Of payload 0 of the feature.
  float* gains;
  uint32_t* segments;

  static bool mine(uint32_t id, uint32_t part, uint32_t parts) {
    return ((static_cast<uint64_t>(id * 2654435761u) * parts) >> 32) == part;
  }

  bool bad(int64_t id) const { return static_cast<uint64_t>(id) >= vocabulary; }

  // Writes a key, and moves on if it is of this part.
  template <bool kAll>
  void put(uint64_t*& to, int64_t id, int64_t own_payload) const {
    *to = static_cast<uint64_t>(id) << 32 | (payload + own_payload);
    to += kAll || mine(id, part, parts);
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
    int64_t before = 0, found = 0;  // The segment of the last occurrences, and their number.
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

// Turns counts, or weights, into gains. `norms`: scratch, [batch].
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

int64_t update_scratch(const Feature* features, int count, int64_t dimension) {
  int64_t total = 0, bytes = sizeof(float) * dimension + 64, most = 0;
  for (int i = 0; i < count; ++i) {
    total += features[i].count;
    bytes += sizeof(float) * gains_of(features[i]) +
             (indexed(features[i]) ? sizeof(uint32_t) * features[i].count : 0);
    if (features[i].batch > most) most = features[i].batch;
  }
  return bytes + total * (2 * sizeof(uint64_t) + 2 * sizeof(uint32_t)) + sizeof(uint32_t) +
         sizeof(uint64_t) + sizeof(float) * most + sizeof(Source) * count;
}

Result update(const Feature* features, const float* const* gradients, int count,
              int64_t vocabulary, int part, int parts, Rule rule, Rows* rows, void* scratch) {
  int64_t total = 0, most = 0, batch = 0;
  for (int i = 0; i < count; ++i) {
    const Feature& f = features[i];
    const int64_t payloads = indexed(f) ? f.count : f.segments();
    total += f.count;
    if (payloads > most) most = payloads;
    if (f.batch > batch) batch = f.batch;
  }
  const int payload_bits = bits_of(most);
  if (payload_bits > 31 || payload_bits + bits_of(count - 1) > 32 || total > INT32_MAX) {
    return kTooMany;
  }

  // Largest alignment first.
  char* at = static_cast<char*>(scratch);
  Source* sources = reinterpret_cast<Source*>(at);
  at += sizeof(Source) * count;
  uint64_t* keys = reinterpret_cast<uint64_t*>(at);
  at += sizeof(uint64_t) * (total + 1);  // `collect` writes one key ahead.
  uint64_t* other = reinterpret_cast<uint64_t*>(at);
  at += sizeof(uint64_t) * total;
  uint32_t* row = reinterpret_cast<uint32_t*>(at);
  at += sizeof(uint32_t) * total;
  uint32_t* offsets = reinterpret_cast<uint32_t*>(at);
  at += sizeof(uint32_t) * (total + 1);
  float* norms = reinterpret_cast<float*>(at);
  at += sizeof(float) * batch;
  rows->scratch = reinterpret_cast<float*>(at);
  at += sizeof(float) * rows->dimension;

  uint64_t* end = keys;
  for (int i = 0; i < count; ++i) {
    const Feature& f = features[i];
    float* gains = gains_of(f) ? reinterpret_cast<float*>(at) : nullptr;
    at += sizeof(float) * gains_of(f);
    uint32_t* segments = indexed(f) ? reinterpret_cast<uint32_t*>(at) : nullptr;
    at += indexed(f) ? sizeof(uint32_t) * f.count : 0;
    const uint64_t payload = static_cast<uint64_t>(i) << payload_bits;
    const Result result =
        f.wide ? Occurrences<int64_t>{f, static_cast<uint64_t>(vocabulary),
                                      static_cast<uint32_t>(part), static_cast<uint32_t>(parts),
                                      payload, gains, segments}
                     .collect_all(end)
               : Occurrences<int32_t>{f, static_cast<uint64_t>(vocabulary),
                                      static_cast<uint32_t>(part), static_cast<uint32_t>(parts),
                                      payload, gains, segments}
                     .collect_all(end);
    if (result != kGood) return result;
    if (gains != nullptr) finish_gains(f, gains, segments, norms);
    sources[i] = Source{gradients[i], gains, segments};
  }

  const int64_t n = end - keys;
  const uint64_t* sorted = sort(keys, other, n, bits_of(vocabulary - 1));
  int64_t distinct = 0;
  offsets[0] = 0;
  for (int64_t k = 0; k < n; ++k) {
    row[distinct] = sorted[k] >> 32;
    offsets[distinct + 1] = k + 1;
    distinct += k + 1 == n || (sorted[k] ^ sorted[k + 1]) >> 32 != 0;
  }

  rows->count = distinct;
  rows->rows = row;
  rows->offsets = offsets;
  rows->keys = sorted;
  rows->payload_bits = payload_bits;
  rows->sources = sources;
  rule(rows);
  return kGood;
}

}  // namespace

extern const Kernels KERNELS = {
    ids_in_range, finite, lookup, lookup_unsorted, update_scratch, update};

}  // namespace estimator_emb
