// Computes the activations of a feature from its ids.

#pragma once

#ifdef __AVX2__
#include <immintrin.h>
#endif
#include <math.h>
#include <string.h>

#include "rows.h"

namespace estimator_emb {
namespace {

// Returns the number that divides the weights of a sample's occurrences, given their sums.
inline float normaliser(Combiner combiner, float weights, float squares) {
  return combiner == kMean ? weights : combiner == kSqrtn ? sqrtf(squares) : 1.0f;
}

// With `past_cache`, writes bypass the cache: other writes would drive the output out of the cache
// before it is read.
template <int64_t D>
inline void copy(float* out, const float* row, int64_t dimension,
                 [[maybe_unused]] bool past_cache) {
#ifdef __AVX2__
  if (D && past_cache) {
    for (int64_t i = 0; i < D; i += 8) _mm256_stream_ps(out + i, _mm256_loadu_ps(row + i));
    return;
  }
#endif
  memcpy(out, row, sizeof(float) * (D ? D : dimension));
}

// Makes writes of `copy` that bypassed the cache visible to other threads.
inline void finish_copies() {
#ifdef __AVX2__
  _mm_sfence();
#endif
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
  // Reads ahead of the checks, so the id may be any number.
  void fetch(int64_t j, int64_t end) const {
    if (j < end && !bad(j)) prefetch(row(j), width());
  }

  Result one(int64_t begin, int64_t end) const {
    for (int64_t j = begin; j < end; ++j) {
      if (bad(j)) return kBadId;
      fetch(j + kAhead, end);
      if (f.weights == nullptr) {
        copy<D>(segment(j), row(j), dimension, f.past_cache);
      } else {
        const float w = f.weights[j];
        const float gain = f.combiner == kSum ? w : quotient(w, normaliser(f.combiner, w, w * w));
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
            copy<D>(to, row(begin + k), dimension, f.past_cache);
          }
        }
        for (int64_t k = f.limit; k < f.width; ++k) {
          if (bad(begin + k) && ids[begin + k] != -1) return kBadId;
        }
        continue;
      }
      if (f.width == 1) {  // At most one id, so the combiner does not matter.
        fetch(begin + kAhead, end);
        if (!bad(begin)) {
          copy<D>(segment(b), row(begin), dimension, f.past_cache);
        } else if (ids[begin] == -1) {
          clear(segment(b), 1, width());
        } else {
          return kBadId;
        }
        continue;
      }
      Sum<D> sum(segment(b), dimension);
      int64_t n = 0;
      for (int64_t j = begin; j < begin + f.width; ++j) {
        fetch(j + kAhead, end);
        if (__builtin_expect(bad(j), 0)) {  // -1 means no id, and is rarer than ids.
          if (ids[j] == -1) continue;
          return kBadId;
        }
        sum.add(row(j));
        ++n;
      }
      sum.write(segment(b), quotient(1.0f, normaliser(f.combiner, n, n)));
    }
    return kGood;
  }

  int64_t sample(int64_t j) const { return f.places[j * f.stride]; }

  // A negative number means kBadPlace.
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

template <typename Id>
Result lookup_ids(const Feature& f, const float* table, int64_t vocabulary, int64_t dimension,
                  int64_t begin, int64_t end, int64_t first, int64_t last, float* norms,
                  float* out) {
  return with_width(dimension, [&](auto width) {
    constexpr int64_t D = decltype(width)::value;
    const Lookup<Id, D> lookup{
        f, static_cast<const Id*>(f.ids), table, static_cast<uint64_t>(vocabulary), dimension, out};
    if (norms != nullptr) return lookup.unsorted(norms);
    const int64_t per_sample = f.limit ? f.limit : 1;
    const Result result = f.form == kOne     ? lookup.one(begin, end)
                          : f.form == kDense ? lookup.dense(first / per_sample, last / per_sample)
                                             : lookup.places(begin, end, first, last);
    finish_copies();
    return result;
  });
}

Result lookup(const Feature* f, const float* table, int64_t vocabulary, int64_t dimension,
              int64_t begin, int64_t end, int64_t first, int64_t last, float* out) {
  return (f->wide ? lookup_ids<int64_t> : lookup_ids<int32_t>)(*f, table, vocabulary, dimension,
                                                               begin, end, first, last, nullptr,
                                                               out);
}

Result lookup_unsorted(const Feature* f, const float* table, int64_t vocabulary, int64_t dimension,
                       float* norms, float* out) {
  return (f->wide ? lookup_ids<int64_t> : lookup_ids<int32_t>)(*f, table, vocabulary, dimension, 0,
                                                               f->count, 0, f->segments(), norms,
                                                               out);
}

// Adds the rows of a table, in the order of `keys`, to the segments where they occur. D is the same
// as in Sum, and kSingle is Rows::single.
template <int64_t D, bool kSingle>
void add_rows(const uint64_t* keys, int64_t count, const Source* sources, int payload_bits,
              const float* table, int64_t any_dimension, float* const* activations) {
  const int64_t dimension = D ? D : any_dimension, ahead = keys_ahead(dimension);
  float* const first = activations[0];
  const auto source = [&](uint32_t key) { return key >> payload_bits; };
  const auto payload = [&](uint32_t key) { return key & ((1u << payload_bits) - 1); };
  const auto segment = [&](uint32_t key) {
    if (kSingle) return first + int64_t{key} * dimension;
    const uint32_t* const segments = sources[source(key)].segments;
    const int64_t u = payload(key);
    return activations[source(key)] + (segments ? segments[u] : u) * dimension;
  };
  for (int64_t k = 0; k < count; ++k) {
    if (k + ahead < count) prefetch(table + (keys[k + ahead] >> 32) * dimension, dimension);
    if (k + kAhead / 2 < count) prefetch(segment(keys[k + kAhead / 2]), dimension);
    const uint32_t key = keys[k];
    float gain = 1.0f;
    if (!kSingle && sources[source(key)].segments) gain = sources[source(key)].gains[payload(key)];
    add<D>(segment(key), gain, table + (keys[k] >> 32) * dimension, dimension);
  }
}

void add_rows(const uint64_t* keys, int64_t count, const Source* sources, int payload_bits,
              bool single, const float* table, int64_t dimension, float* const* activations) {
  with_width(dimension, [&](auto width) {
    constexpr int64_t D = decltype(width)::value;
    (single ? add_rows<D, true> : add_rows<D, false>)(keys, count, sources, payload_bits, table,
                                                      dimension, activations);
  });
}

}  // namespace
}  // namespace estimator_emb
